"""`python -m benchmarks.peers`: how long a round takes here, in plain PyTorch and in other frameworks."""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.output import command_line, make_room, show, write_record
from benchmarks.peers.measure import PeersBench, make_runners, measure, remarks, table
from benchmarks.peers.runners import FRAMEWORKS
from benchmarks.program import main
from feddst.cli.arguments import Arguments
from feddst.cli.command import Command
from feddst.cli.places import fresh
from feddst.cli.screen import say
from feddst.options import option, options_of, updated

FAILED = 1


@dataclass(frozen=True)
class PeersBenchArguments(PeersBench):
    """What to measure, and where to write it."""

    out: str = option("", "the record, a JSON file; empty: a new one under runs/")


def peers_command(given: Arguments) -> int:
    """Carry out `python -m benchmarks.peers`."""
    asked = updated(PeersBenchArguments(), given.values)
    asked.check()
    out = Path(asked.out) if asked.out else fresh("bench-peers", ".json")
    runners = make_runners(asked)
    make_room(out)
    record = measure(asked, runners, say)
    show([table(record)])
    for line in remarks(record):
        print(line)
    # The paths of the interpreters are private.
    places = {framework.option: "PYTHON" for framework in FRAMEWORKS if given.values.get(framework.option)}
    write_record(out, record.as_json(command_line("peers", {**given.values, **places})))
    return FAILED if record.failed else 0


COMMAND = Command(
    "[--flower PYTHON] [--pfl PYTHON] [--fedlab PYTHON] [--out FILE] [options]",
    "measure seconds a round beside plain PyTorch and other frameworks",
    lambda: options_of(PeersBenchArguments),
    peers_command,
)

if __name__ == "__main__":
    sys.exit(main("peers", COMMAND))
