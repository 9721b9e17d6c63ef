"""`feddst bench cpu`: what rounds cost on this machine's CPU."""

from dataclasses import dataclass
from pathlib import Path

from feddst.bench.cpu import CpuBench, make_jobs, measure
from feddst.bench.cpu_tables import markdown, tables
from feddst.cli.arguments import Arguments
from feddst.cli.bench_output import bench_command, make_room, show, write_page, write_record
from feddst.cli.places import fresh
from feddst.cli.screen import say
from feddst.options import option, updated


@dataclass(frozen=True)
class CpuBenchArguments(CpuBench):
    """What to measure, and where to write it."""

    out: str = option("", "the record, a JSON file; empty: a new one under runs/")
    markdown: str = option("", "also write the tables to this file, as Markdown")


def cpu_command(given: Arguments) -> int:
    """Carry out `feddst bench cpu`."""
    asked = updated(CpuBenchArguments(), given.values)
    asked.check()
    out = Path(asked.out) if asked.out else fresh("bench-cpu", ".json")
    page = Path(asked.markdown) if asked.markdown else None
    jobs = make_jobs(asked)
    make_room(out, page)
    record = measure(asked, jobs, say)
    show(tables(record))
    about = record.as_json(bench_command("cpu", given.values))
    write_record(out, about)
    write_page(page, markdown(record, about))
    return 0
