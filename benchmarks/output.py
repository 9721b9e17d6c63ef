"""Where the benches put what they measured, and how they show it."""

import json
import shlex
import textwrap
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.program import program
from benchmarks.tables import Table
from feddst.cli.screen import say, show_table
from feddst.errors import OptionError
from feddst.options import as_words
from feddst.runtime.storage import write_atomically

WIDTH = 100
PLACES = ("out", "markdown")
"""The options that say where results go, which a record's command leaves out."""


def make_room(*paths: Path | None) -> None:
    """Raise if one of these files exists, or two are one; make the directories that they go to."""
    wanted = [path for path in paths if path is not None]
    for path in wanted:
        if wanted.count(path) > 1:
            raise OptionError(f"out and markdown must be two files, got {path} twice")
        if path.exists():
            raise OptionError(f"{path} exists already")
    for path in wanted:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"cannot create {path.parent}: {error.strerror or error}") from None


def command_line(name: str, values: Mapping[str, Any], without: Collection[str] = PLACES) -> str:
    """The command that measures the same, in the repository's root."""
    given = {option: value for option, value in values.items() if option not in without}
    return shlex.join([*program(name).split(), *as_words(given)])


def show(tables: Iterable[Table]) -> None:
    """Tables on standard output, each with its title and caption."""
    for table in tables:
        print(f"\n{table.title}\n{textwrap.fill(table.caption, WIDTH)}")
        for name, meaning in table.columns.items():
            print(textwrap.fill(f"{name}: {meaning}", WIDTH))
        show_table(table.rows, numbers=table.numbers)


def write_record(path: Path, about: Mapping[str, Any]) -> None:
    """Write a record as JSON, and say where."""
    write_atomically(path, (json.dumps(about, indent=1) + "\n").encode())
    say(f"record: {path}")


def write_page(path: Path | None, page: str) -> None:
    """Write a page, if it has a place, and say where."""
    if path is not None:
        write_atomically(path, page.encode())
        say(f"tables: {path}")
