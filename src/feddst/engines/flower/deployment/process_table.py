"""The processes of this machine: who started whom. On Linux from /proc, elsewhere from `ps`."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Process(NamedTuple):
    """A process, its parent, and the words of its command line."""

    pid: int
    parent: int
    words: list[str]


def descendants(pid: int) -> list[Process]:
    """What a process started, what that started, and so on, as long as nobody between has ended."""
    table = list(_linux() if (_PROC / "self" / "stat").exists() else _others())
    found: list[Process] = []
    parents = {pid}
    while parents:
        children = [process for process in table if process.parent in parents]
        found += children
        parents = {process.pid for process in children}
    return found


def _linux() -> Iterator[Process]:
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it may end while it is looked at
            after_name = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            yield Process(int(folder.name), int(after_name[1]), words)


def _others() -> Iterator[Process]:
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    for line in table.splitlines():
        pid, parent, *words = line.split()
        yield Process(int(pid), int(parent), words)
