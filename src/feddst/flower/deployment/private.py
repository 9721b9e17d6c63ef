"""Files and directories that only their owner can read: they hold keys, models and the output of processes."""

import os
from pathlib import Path
from typing import BinaryIO


def make_private(folder: Path) -> None:
    """Make a directory, and those above it, for its owner only. One that is there already stays as it is."""
    for one in (*reversed(folder.parents), folder):
        one.mkdir(mode=0o700, exist_ok=True)


def open_private(path: Path) -> BinaryIO:
    """Open a file to write at its end; a new one is its owner's alone from the first byte on."""
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
