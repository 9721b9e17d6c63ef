"""`feddst bench peers`: how long a round takes here, in plain PyTorch and in other frameworks."""

from dataclasses import dataclass
from pathlib import Path

from feddst.bench.peers import PeersBench, make_runners, measure, remarks, table
from feddst.bench.peers_runners import FRAMEWORKS
from feddst.cli.arguments import Arguments
from feddst.cli.bench_output import bench_command, make_room, show, write_record
from feddst.cli.places import fresh
from feddst.cli.screen import say
from feddst.options import option, updated

FAILED = 1


@dataclass(frozen=True)
class PeersBenchArguments(PeersBench):
    """What to measure, and where to write it."""

    out: str = option("", "the record, a JSON file; empty: a new one under runs/")


def peers_command(given: Arguments) -> int:
    """Carry out `feddst bench peers`."""
    asked = updated(PeersBenchArguments(), given.values)
    asked.check()
    out = Path(asked.out) if asked.out else fresh("bench-peers", ".json")
    runners = make_runners(asked)
    make_room(out)
    record = measure(asked, runners, say)
    show([table(record)])
    for line in remarks(record):
        print(line)
    # Whose interpreters they were, and where they lie, is nobody else's concern.
    places = {framework.option: "PYTHON" for framework in FRAMEWORKS if given.values.get(framework.option)}
    write_record(out, record.as_json(bench_command("peers", {**given.values, **places})))
    return FAILED if record.failed else 0
