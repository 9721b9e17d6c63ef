"""Time rounds in which nothing is done: Flower's own loop and ours, in turn, in one run of one deployment.

    python -m benchmarks.flower.rounds --out results/flower-rounds.json

Three SuperNodes on loopback, with TLS and keys, and Flower as it is. The loops are described in the app that is run,
`tests/flower/deployment/apps/noop`.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from feddst.errors import FlowerError
from feddst.flower.config import Value
from feddst.flower.deployment.local import LocalDeployment
from feddst.runtime.machine import commit, machine

NOOP = Path(__file__).parents[2] / "tests" / "flower" / "deployment" / "apps" / "noop"
LOOPS = ("flower", "flower-evaluate", "own")
NODES = 3
LONGEST = 60.0
"""Seconds that no round should take."""


def measure(rounds: int, turns: int) -> dict[str, list[float]]:
    """The seconds of every round, by loop. The first turn, in which nodes fetch the app, is not among them."""
    seconds: dict[str, list[float]] = {name: [] for name in LOOPS}

    def note(line: str) -> None:
        if line.startswith("{"):
            shown = json.loads(line)
            seconds[shown["noop"]].append(shown["seconds"])
            print(f"{shown['noop']:16s} {shown['seconds']:6.2f} s", flush=True)

    config: dict[str, Value] = {"nodes": NODES, "loops": ",".join(("own", *LOOPS * turns)), "rounds": rounds}
    with tempfile.TemporaryDirectory() as folder, LocalDeployment(Path(folder), NODES) as deployment:
        end = deployment.run_app(NOOP, config, seconds=LONGEST * rounds * (len(LOOPS) * turns + 1), on_line=note)
    if not end.completed:
        raise FlowerError(f"the run {end.status}: {end.details}")
    del seconds["own"][:rounds]
    return seconds


def summary(seconds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The mean of each loop, and what part ours is of Flower's with and without evaluation."""
    means = {name: statistics.mean(values) for name, values in seconds.items()}
    return {"mean_seconds": means, "part_of_flowers": {theirs: means["own"] / means[theirs] for theirs in LOOPS[:2]}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of a loop in a row")
    parser.add_argument("--turns", type=int, default=3, help="of all the loops")
    parser.add_argument("--out", type=Path, help="where to write the record")
    args = parser.parse_args()
    if args.out is not None and args.out.exists():
        parser.error(f"{args.out} exists already")
    seconds = measure(args.rounds, args.turns)
    record = {
        "command": " ".join(["python -m benchmarks.flower.rounds", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine() | {"flwr": version("flwr")},
        "nodes": NODES,
        "seconds": seconds,
        **summary(seconds),
    }
    print(json.dumps(summary(seconds), indent=1))
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
