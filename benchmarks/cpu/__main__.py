"""`python -m benchmarks.cpu`: what rounds cost on this machine's CPU."""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu.measure import CpuBench, make_jobs, measure
from benchmarks.cpu.tables import markdown, tables
from benchmarks.output import command_line, make_room, show, write_page, write_record
from benchmarks.program import main
from feddst.cli.arguments import Arguments
from feddst.cli.command import Command
from feddst.cli.places import fresh
from feddst.cli.screen import say
from feddst.options import option, options_of, updated


@dataclass(frozen=True)
class CpuBenchArguments(CpuBench):
    """What to measure, and where to write it."""

    out: str = option("", "the record, a JSON file; empty: a new one under runs/")
    markdown: str = option("", "also write the tables to this file, as Markdown")


def cpu_command(given: Arguments) -> int:
    """Carry out `python -m benchmarks.cpu`."""
    asked = updated(CpuBenchArguments(), given.values)
    asked.check()
    out = Path(asked.out) if asked.out else fresh("bench-cpu", ".json")
    page = Path(asked.markdown) if asked.markdown else None
    jobs = make_jobs(asked)
    make_room(out, page)
    record = measure(asked, jobs, say)
    show(tables(record))
    about = record.as_json(command_line("cpu", given.values))
    write_record(out, about)
    write_page(page, markdown(record, about))
    return 0


COMMAND = Command(
    "[--jobs A,B,…] [--sparsities X,Y,…] [--out FILE] [--markdown FILE] [options]",
    "measure rounds on this machine's CPU, beside PyTorch and what arithmetic allows",
    lambda: options_of(CpuBenchArguments),
    cpu_command,
)

if __name__ == "__main__":
    sys.exit(main("cpu", COMMAND))
