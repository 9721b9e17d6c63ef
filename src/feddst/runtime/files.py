"""Writing files so that however a program dies, what was there before or what is there now is whole."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from feddst.errors import CheckpointError

PARTIAL = ".partial"
"""How the name of a file ends that is not written to its end."""


def write_atomically(path: Path, content: bytes, keep: Path | None = None) -> None:
    """Replace a file's content in one step: readers and crashes see the old or the new, never a part.

    What was there before is at `keep` from then on, if that is given. Whoever is stopped between these two steps
    leaves nothing at `path`.
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
    """Wait until the names in a directory are on the disk, where its file system can be told to."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What goes wrong in here is one line that names the file."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}") from None


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """The same for what is read."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
