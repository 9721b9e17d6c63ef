"""Show how long a round takes with two commits, played in turn on this machine.

    python -m scripts.compare_speed COMMIT --out results/same-speed.json

Each turn plays the same runs with the package of a commit and with the one of this checkout, one right after the other,
so that other load on the machine affects both. A run's figure is the shortest of its rounds without evaluation, after
the first two; the ratio of a pair is that of their figures, and the median over turns is what counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.compare_commits import ROOT, CaseError, Package, package_of, write

JOBS: Mapping[str, Mapping[str, Any]] = {
    "MNIST, S = 0.8": {"sparsity.level": 0.8},
    "MNIST, S = 0.95": {"sparsity.level": 0.95},
    "MNIST, S = 0.8, q4": {"sparsity.level": 0.8, "wire.values": "q4"},
    "MNIST, S = 0.8, reference engine": {"sparsity.level": 0.8, "engine.kind": "reference", "cohort.size": 4},
}
USUAL = {"method": "feddst", "seed": 0, "readjust.every": 5, "eval_every": 1000, "checkpoint_every": 1000}
LEFT_OUT = 2
"""Rounds at a run's beginning that do not count: masks are sent whole, and memory is fresh."""


def round_seconds(package: Package, options: Mapping[str, Any], rounds: int, folder: Path) -> float:
    """The shortest round of a run."""
    config, out = folder / "config.toml", folder / "run"
    values = {**USUAL, **options, "rounds": rounds}
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    command = [sys.executable, "-m", "feddst", "run", "--config", str(config), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(package.source)}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True)
    if done.returncode:
        raise CaseError(f"a run of {package.commit} failed:\n{done.stderr.decode(errors='replace').strip()}")
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return min(float(row["seconds"]) for row in rows[LEFT_OUT:-1])


def measure(packages: Sequence[Package], options: Mapping[str, Any], rounds: int, turns: int) -> dict[str, Any]:
    """Both packages' shortest rounds, turn by turn, and the median of the second's share of the first's."""
    seconds: list[list[float]] = []
    for turn in range(turns):
        order = packages if turn % 2 == 0 else packages[::-1]
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            found = {
                package.source: round_seconds(package, options, rounds, Path(folder))
                for package, folder in zip(order, (one, two), strict=True)
            }
        seconds.append([found[package.source] for package in packages])
    ratios = [now / base for base, now in seconds]
    return {"base": min(base for base, _ in seconds), "now": min(now for _, now in seconds)} | {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def main() -> int:
    from feddst.runtime.machine import commit, machine

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what this checkout is compared with")
    parser.add_argument("--turns", type=int, default=7, help="how often each run is played with either (default: 7)")
    parser.add_argument("--rounds", type=int, default=14, help="rounds of a run (default: 14)")
    parser.add_argument("--only", default="", help="only jobs with this in their names")
    parser.add_argument("--out", type=Path, help="write a record")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        packages = [package_of(args.commit, Path(name).resolve()), Package(ROOT / "src", commit())]
        for job, options in JOBS.items():
            if args.only in job:
                found[job] = measure(packages, options, args.rounds, args.turns)
                figures = found[job]
                print(
                    f"{job}: {1e3 * figures['base']:.1f} ms, now {1e3 * figures['now']:.1f} ms, "
                    f"ratio {figures['ratio']:.3f}",
                    flush=True,
                )
    if args.out is not None:
        record = {
            "command": " ".join(["python -m scripts.compare_speed", *sys.argv[1:]]),
            "base": packages[0].commit,
            "now": packages[1].commit,
        }
        write(args.out, {**record, "machine": machine(), "cases": found})
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CaseError as error:
        sys.exit(f"compare_speed.py: {error}")
