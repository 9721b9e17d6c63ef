"""`feddst bench wire`: what models on the wire cost."""

import json
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddst.bench.wire import WireBench, measure
from feddst.bench.wire_tables import markdown, tables
from feddst.cli.arguments import Arguments
from feddst.cli.places import fresh
from feddst.cli.screen import say, show_table
from feddst.errors import OptionError
from feddst.experiment.storage import write_atomically
from feddst.options import as_words, option, updated

WIDTH = 100
_PLACES = ("out", "markdown")


@dataclass(frozen=True)
class WireBenchArguments(WireBench):
    """What to measure, and where to write it."""

    out: str = option("", "the record, a JSON file; empty: a new one under runs/")
    markdown: str = option("", "also write the tables to this file, as Markdown")


def wire_command(given: Arguments) -> int:
    """Carry out `feddst bench wire`."""
    asked = updated(WireBenchArguments(), given.values)
    asked.check()
    out = Path(asked.out) if asked.out else fresh("bench-wire", ".json")
    page = Path(asked.markdown) if asked.markdown else None
    if out == page:
        raise OptionError(f"out and markdown must be two files, got {out} twice")
    _make_room([path for path in (out, page) if path is not None])
    record = measure(asked, say)
    for table in tables(record):
        print(f"\n{table.title}\n{textwrap.fill(table.caption, WIDTH)}")
        show_table(table.rows, numbers=table.numbers)
    about = record.as_json(_command(given.values))
    write_atomically(out, (json.dumps(about, indent=1) + "\n").encode())
    say(f"record: {out}")
    if page is not None:
        write_atomically(page, markdown(record, about).encode())
        say(f"tables: {page}")
    return 0


def _make_room(paths: list[Path]) -> None:
    """Raise if one of these files exists; make the directories that they go to."""
    for path in paths:
        if path.exists():
            raise OptionError(f"{path} exists already")
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"cannot create {path.parent}: {error.strerror or error}") from None


def _command(values: Mapping[str, Any]) -> str:
    """The command line that measures the same."""
    given = {name: value for name, value in values.items() if name not in _PLACES}
    return shlex.join(["feddst", "bench", "wire", *as_words(given)])
