"""A process and its descendants, its family: listing it, and ending it.

Run as a program, with a command as its words, this file starts the command and passes SIGTERM on to it. When the
command ends, it kills what is left of the family and returns the command's exit code. When standard input closes, it
kills the whole family at once: so a `Service` ends with the process that started it, whatever ended that. The program
is started by this file's path and needs only the standard library: importing the package would take it seconds.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36
_BY_SIGNAL = 128
"""What a shell adds to the number of the signal that ended a program, to make an exit code of it."""


class Process(NamedTuple):
    """A process, its parent, and the words of its command line."""

    pid: int
    parent: int
    words: list[str]


def descendants(pid: int) -> list[Process]:
    """What a process started, what that started, and so on, as long as no process between has ended."""
    table = list(_linux() if (_PROC / "self" / "stat").exists() else _others())
    found: list[Process] = []
    parents = {pid}
    while parents:
        children = [process for process in table if process.parent in parents]
        found += children
        parents = {process.pid for process in children}
    return found


def kill_descendants() -> None:
    """SIGKILL to all that this process started, and wait until they are gone.

    They are halted first, so that none starts another meanwhile.
    """
    halted: set[int] = set()
    while new := {process.pid for process in descendants(os.getpid())} - halted:
        for pid in new:
            _send(pid, signal.SIGSTOP)
        halted |= new
    for pid in halted:
        _send(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def main(words: Sequence[str]) -> int:
    """Run a command to its end, or to that of standard input; its exit code."""
    _adopt_orphans()
    terminated, child = False, 0

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = True
        if child:
            _send(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    started = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    child = started.pid
    if terminated:
        _send(child, signal.SIGTERM)
    threading.Thread(target=_kill_when_input_ends, daemon=True).start()
    ended = 0
    while ended != child:  # others are orphans of its family
        ended, status = os.wait()
    child = 0
    kill_descendants()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _BY_SIGNAL - code


def _kill_when_input_ends() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    kill_descendants()
    os._exit(_BY_SIGNAL + signal.SIGKILL)


def _adopt_orphans() -> None:
    """On Linux, adopt the orphans of this family, so that they still belong to it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _linux() -> Iterator[Process]:
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile
            after_name = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            yield Process(int(folder.name), int(after_name[1]), words)


def _others() -> Iterator[Process]:
    with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid=,args="], stdout=subprocess.PIPE, text=True) as ps:
        table = ps.communicate()[0]
    for line in table.splitlines():
        pid, parent, *words = line.split()
        if int(pid) != ps.pid:  # which has ended by now
            yield Process(int(pid), int(parent), words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
