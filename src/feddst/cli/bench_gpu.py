"""`feddst bench gpu`: what training steps cost on this machine's GPU."""

from dataclasses import dataclass
from pathlib import Path

from feddst.bench.gpu import GpuBench, measure
from feddst.bench.gpu_tables import markdown, remarks, tables
from feddst.cli.arguments import Arguments
from feddst.cli.bench_output import bench_command, make_room, show, write_page, write_record
from feddst.cli.places import fresh
from feddst.cli.screen import say
from feddst.options import option, updated

FAILED = 1


@dataclass(frozen=True)
class GpuBenchArguments(GpuBench):
    """What to measure, and where to write it."""

    out: str = option("", "the record, a JSON file; empty: a new one under runs/")
    markdown: str = option("", "also write the tables to this file, as Markdown")


def gpu_command(given: Arguments) -> int:
    """Carry out `feddst bench gpu`."""
    asked = updated(GpuBenchArguments(), given.values)
    asked.check()
    out = Path(asked.out) if asked.out else fresh("bench-gpu", ".json")
    page = Path(asked.markdown) if asked.markdown else None
    make_room(out, page)
    record = measure(asked, say)
    show(tables(record))
    for line in remarks(record):
        print(line)
    about = record.as_json(bench_command("gpu", given.values))
    write_record(out, about)
    write_page(page, markdown(record, about))
    return FAILED if record.failed else 0
