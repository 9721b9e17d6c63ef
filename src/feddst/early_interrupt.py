"""Ctrl-C while the program is still being imported, which takes a second or two: one line instead of a traceback.

Importing this module does it. Only the program `feddst` is watched; nothing changes in other programs.
What is imported here is small, since an interrupt before its end is still a traceback.
"""

import os
import signal
import sys
import threading
from types import FrameType

INTERRUPTED = 130
"""The exit code of a program that was interrupted, as shells have it."""


def watch() -> None:
    """End the program `feddst` in one line at SIGINT, unless it was started with SIGINT ignored."""
    if _is_program() and threading.current_thread() is threading.main_thread() and _untouched():
        signal.signal(signal.SIGINT, _end)


def unwatch() -> None:
    """Hand SIGINT back to Python, now that the program can catch what it raises."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_program() -> bool:
    # Python says "-m" for as long as `python -m feddst` looks for what to run, which imports the package.
    return bool(sys.argv) and (sys.argv[0] == "-m" or os.path.basename(sys.argv[0]) == "feddst")


def _untouched() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _end(number: int, frame: FrameType | None) -> None:
    # Not an exception: imports under way, and libraries that catch everything, would get in its way.
    os.write(2, b"feddst: interrupted\n")
    os._exit(INTERRUPTED)


watch()
