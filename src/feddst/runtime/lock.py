"""One process at a time writes to a directory."""

import errno
import fcntl
import logging
import os
import platform
import re
import weakref
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import takewhile
from pathlib import Path
from types import TracebackType

from feddst.errors import CheckpointError
from feddst.runtime.files import writing

LOCK = ".lock"
"""The lock file in a directory: the process that writes there holds it, and it names that process."""
_HOLDER = re.compile(r"\d{1,20} on [\w.-]{1,255}")
_HELD = (errno.EWOULDBLOCK, errno.EACCES)
"""The errors of a lock that another process holds; any other error means a file system without locks."""

log = logging.getLogger(__name__)


class Lock:
    """Keeps other processes from writing to a directory until `release`; makes the directory if it is missing.

    The kernel frees the lock however the process ends: no lock outlives its holder.
    """

    def __init__(self, path: Path) -> None:
        made = _make(path)
        descriptor = _acquire(path)
        self._finalizer = weakref.finalize(self, _release, descriptor, path, os.getpid(), made)

    def release(self) -> None:
        """Let others write; calling it again does nothing."""
        self._finalizer()

    def __enter__(self) -> "Lock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def locked(path: Path | None) -> AbstractContextManager[object]:
    """A lock on a directory, if there is one."""
    return nullcontext() if path is None else Lock(path)


def _make(path: Path) -> list[Path]:
    """Make a directory and its missing parents; returns the folders it made, the innermost first."""
    made = list(takewhile(lambda folder: not folder.exists(), [path, *path.parents]))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot create {path}: {error.strerror or error}") from None
    return made


def _acquire(path: Path) -> int:
    """Open the lock's file and hold it; returns its descriptor."""
    file = path / LOCK
    while True:
        with writing(file):
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _read_holder(descriptor)
            if error.errno in _HELD:
                os.close(descriptor)
                raise CheckpointError(f"{path} is being written to by {holder}: wait for its end, or stop it") from None
            log.warning("%s is on a file system without locks: see to it that no other process writes there", path)
        if _is_still(descriptor, file):
            break
        os.close(descriptor)  # its holder has just removed it
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {platform.node()}\n".encode(), 0)
    return descriptor


def _read_holder(descriptor: int) -> str:
    with suppress(OSError):
        text = os.pread(descriptor, 300, 0).decode(errors="replace").strip()
        if _HOLDER.fullmatch(text):
            return f"process {text}"
    return "another process"


def _is_still(descriptor: int, file: Path) -> bool:
    """Whether an open file is still the one at that path."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except OSError:
        return False


def _release(descriptor: int, path: Path, holder: int, made: list[Path]) -> None:
    if os.getpid() == holder:  # a forked process does not own the lock
        with suppress(OSError):
            (path / LOCK).unlink()
        with suppress(OSError):
            for folder in made:
                folder.rmdir()  # only if it is empty
    os.close(descriptor)
