"""`feddst bench scale`: what rounds cost the server as clients grow in number."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from feddst.bench.scale_options import ScaleBench
from feddst.cli.arguments import Arguments
from feddst.cli.bench_output import bench_command, make_room, show, write_page, write_record
from feddst.cli.places import fresh
from feddst.cli.screen import say
from feddst.errors import FlowerError
from feddst.options import option, updated


@dataclass(frozen=True)
class ScaleBenchArguments(ScaleBench):
    """What to measure, and where to write it."""

    out: str = option("", "the record, a JSON file; empty: a new one under runs/")
    markdown: str = option("", "also write the tables to this file, as Markdown")


def scale_command(given: Arguments) -> int:
    """Carry out `feddst bench scale`."""
    if find_spec("flwr") is None:
        raise FlowerError("this needs Flower: pip install 'feddst[flower]'")
    from feddst.bench.scale import measure
    from feddst.bench.scale_tables import markdown, tables

    asked = updated(ScaleBenchArguments(), given.values)
    asked.check()
    out = Path(asked.out) if asked.out else fresh("bench-scale", ".json")
    page = Path(asked.markdown) if asked.markdown else None
    make_room(out, page)
    record = measure(asked, say)
    show(tables(record))
    about = record.as_json(bench_command("scale", given.values))
    write_record(out, about)
    write_page(page, markdown(record, about))
    return 0
