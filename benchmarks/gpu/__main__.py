"""`python -m benchmarks.gpu`: what training steps cost on this machine's GPU."""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.measure import GpuBench, measure
from benchmarks.gpu.tables import markdown, remarks, tables
from benchmarks.output import command_line, make_room, show, write_page, write_record
from benchmarks.program import main
from feddst.cli.arguments import Arguments
from feddst.cli.command import Command
from feddst.cli.places import fresh
from feddst.cli.screen import say
from feddst.options import option, options_of, updated

FAILED = 1


@dataclass(frozen=True)
class GpuBenchArguments(GpuBench):
    """What to measure, and where to write it."""

    out: str = option("", "the record, a JSON file; empty: a new one under runs/")
    markdown: str = option("", "also write the tables to this file, as Markdown")


def gpu_command(given: Arguments) -> int:
    """Carry out `python -m benchmarks.gpu`."""
    asked = updated(GpuBenchArguments(), given.values)
    asked.check()
    out = Path(asked.out) if asked.out else fresh("bench-gpu", ".json")
    page = Path(asked.markdown) if asked.markdown else None
    make_room(out, page)
    record = measure(asked, say)
    show(tables(record))
    for line in remarks(record):
        print(line)
    about = record.as_json(command_line("gpu", given.values))
    write_record(out, about)
    write_page(page, markdown(record, about))
    return FAILED if record.failed else 0


COMMAND = Command(
    "[--models M] [--images A,B,…] [--against X,Y,…] [--out FILE] [--markdown FILE] [options]",
    "measure training steps on this machine's GPU, beside PyTorch and what the chip's products reach",
    lambda: options_of(GpuBenchArguments),
    gpu_command,
)

if __name__ == "__main__":
    sys.exit(main("gpu", COMMAND))
