"""Writing files atomically: however a program dies, the old content or the new one is there, whole."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from feddst.errors import CheckpointError

PARTIAL = ".partial"
"""The suffix of a file that is not completely written."""


def write_atomically(path: Path, content: bytes, keep: Path | None = None) -> None:
    """Replace a file's content in one step: readers and crashes see the old or the new, never a part.

    If `keep` is given, the old file is moved there first. A process that dies between these two steps leaves nothing
    at `path`.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        with writing(path):
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if keep is not None and path.is_file():
                os.replace(path, keep)
            os.replace(partial, path)
    except CheckpointError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk, if its file system supports that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """An `OSError` in here becomes a `CheckpointError` that names the file."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}") from None


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """The same for reading."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
