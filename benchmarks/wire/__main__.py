"""`python -m benchmarks.wire`: what models on the wire cost."""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.output import command_line, make_room, show, write_page, write_record
from benchmarks.program import main
from benchmarks.wire.measure import WireBench, measure
from benchmarks.wire.tables import markdown, tables
from feddst.cli.arguments import Arguments
from feddst.cli.command import Command
from feddst.cli.places import fresh
from feddst.cli.screen import say
from feddst.options import option, options_of, updated


@dataclass(frozen=True)
class WireBenchArguments(WireBench):
    """What to measure, and where to write it."""

    out: str = option("", "the record, a JSON file; empty: a new one under runs/")
    markdown: str = option("", "also write the tables to this file, as Markdown")


def wire_command(given: Arguments) -> int:
    """Carry out `python -m benchmarks.wire`."""
    asked = updated(WireBenchArguments(), given.values)
    asked.check()
    out = Path(asked.out) if asked.out else fresh("bench-wire", ".json")
    page = Path(asked.markdown) if asked.markdown else None
    make_room(out, page)
    record = measure(asked, say)
    show(tables(record))
    about = record.as_json(command_line("wire", given.values))
    write_record(out, about)
    write_page(page, markdown(record, about))
    return 0


COMMAND = Command(
    "[--networks A,B,…] [--levels X,Y,…] [--out FILE] [--markdown FILE] [options]",
    "measure the bytes and the speed of updates on the wire",
    lambda: options_of(WireBenchArguments),
    wire_command,
)

if __name__ == "__main__":
    sys.exit(main("wire", COMMAND))
