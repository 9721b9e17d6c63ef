"""`python -m benchmarks.scale`: what rounds cost the server as clients grow in number."""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.output import command_line, make_room, show, write_page, write_record
from benchmarks.program import main
from benchmarks.scale.options import ScaleBench
from feddst.cli.arguments import Arguments
from feddst.cli.command import Command
from feddst.cli.places import fresh
from feddst.cli.screen import say
from feddst.errors import FlowerError
from feddst.options import option, options_of, updated


@dataclass(frozen=True)
class ScaleBenchArguments(ScaleBench):
    """What to measure, and where to write it."""

    out: str = option("", "the record, a JSON file; empty: a new one under runs/")
    markdown: str = option("", "also write the tables to this file, as Markdown")


def scale_command(given: Arguments) -> int:
    """Carry out `python -m benchmarks.scale`."""
    if find_spec("flwr") is None:
        raise FlowerError("this needs Flower: pip install 'feddst[flower]'")
    from benchmarks.scale.measure import measure
    from benchmarks.scale.tables import markdown, tables

    asked = updated(ScaleBenchArguments(), given.values)
    asked.check()
    out = Path(asked.out) if asked.out else fresh("bench-scale", ".json")
    page = Path(asked.markdown) if asked.markdown else None
    make_room(out, page)
    record = measure(asked, say)
    show(tables(record))
    about = record.as_json(command_line("scale", given.values))
    write_record(out, about)
    write_page(page, markdown(record, about))
    return 0


COMMAND = Command(
    "[--networks A,B,…] [--codecs A,B,…] [--clients N,M,…] [--out FILE] [--markdown FILE] [options]",
    "measure the server's time and memory as clients in a round grow in number",
    lambda: options_of(ScaleBenchArguments),
    scale_command,
)

if __name__ == "__main__":
    sys.exit(main("scale", COMMAND))
