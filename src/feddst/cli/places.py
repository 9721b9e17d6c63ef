"""Where results go when the user names no place, and how to call this program again."""

import shlex
import shutil
import sys
from pathlib import Path

RUNS = Path("runs")


def fresh(name: str, suffix: str = "") -> Path:
    """A path under `runs/` that is not taken: the name, or the name with the first free number."""
    path, number = RUNS / f"{name}{suffix}", 1
    while path.exists():
        number += 1
        path = RUNS / f"{name}-{number}{suffix}"
    return path


def command(*words: str) -> str:
    """A command line that calls this program with `words`, to be copied into the same shell."""
    return shlex.join([*_program(), *words])


def _program() -> list[str]:
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return [sys.executable, "-m", "feddst"]
    found = shutil.which("feddst")
    if found is not None and called.exists() and Path(found).samefile(called):
        return ["feddst"]
    return [str(called)]
