"""MLflow's store in a SQLite file: made whole, or not at all.

MLflow takes seconds to make its tables one by one, and never again opens a file in which only some of them are. So a
new file is made under another name first: stopping that leaves nothing that looks like a store.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

_SCHEME = "sqlite:///"


def sqlite_file(uri: str) -> Path | None:
    """The file that a store's address names, if it is one of SQLite's."""
    return Path(uri.removeprefix(_SCHEME)) if uri.startswith(_SCHEME) and not urlsplit(uri).query else None


def make_whole(uri: str, make: Callable[[str], object]) -> None:
    """Let `make` make the store at `uri`, unless it is there already or in no file."""
    path = sqlite_file(uri)
    if path is None or path.exists() or not path.parent.is_dir():
        return
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        make(f"{_SCHEME}{unfinished}")
        if not path.exists():  # another program may have been faster
            os.rename(unfinished, path)
    finally:
        for left in (unfinished, unfinished.with_name(f"{unfinished.name}-journal")):
            with contextlib.suppress(OSError):
                left.unlink()


def reason_of(error: Exception, uri: str) -> str:
    """Why a store cannot be used, in a line, and what to do about a file that is not whole."""
    whole = " ".join(str(error).split()) or type(error).__name__
    reason = whole.partition(" [SQL:")[0].partition(" (Background on")[0]
    path = sqlite_file(uri)
    if path is None or not path.is_file():
        return reason
    return f"{reason}; if {path} is half-made or of another MLflow, move it away, and a new one is made"
