"""Kill a run with SIGKILL at random moments, resume it, and compare with a run that was not killed.

    python scripts/kill_and_resume.py --kills 20 --out results/kill-and-resume.json

Every case begins a `feddst run` on bundled MNIST in a directory of its own, kills it and its workers' parent at a
random moment between its start and its end, resumes it from the command line, and checks that the final checkpoint
and the details are the same to the last byte and the metrics the same apart from timings.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from feddst.runtime.metrics import Row
from feddst.runtime.storage import RunDirectory

OPTIONS = [
    "--rounds=24",
    "--eval-every=12",
    "--checkpoint-every=5",
    "--seed=3",
    "--data.clients=40",
    "--cohort.size=6",
    "--local.epochs=2",
    "--readjust.every=4",
    "--readjust.until=20",
    "--readjust.alpha=0.2",
    "--engine.workers=2",
]


@dataclass(frozen=True)
class Case:
    """What one kill did: when it came, how many rounds were on record, and whether the end was the same."""

    after_seconds: float
    rows_at_kill: int
    checkpoint_at_kill: bool
    same_checkpoint: bool
    same_metrics: bool
    same_details: bool

    @property
    def same(self) -> bool:
        return self.same_checkpoint and self.same_metrics and self.same_details


def kill_and_resume(kills: int, folder: Path, options: Sequence[str], seed: int) -> list[Case]:
    """The unbroken run, then `kills` killed ones, each compared with it."""
    whole = RunDirectory(folder / "whole")
    began = time.monotonic()
    subprocess.run(_command(whole, options), check=True, capture_output=True)
    seconds = time.monotonic() - began
    moments = random.Random(seed)
    return [_case(RunDirectory(folder / str(i)), whole, options, moments.uniform(0.1, seconds)) for i in range(kills)]


def _case(broken: RunDirectory, whole: RunDirectory, options: Sequence[str], after: float) -> Case:
    process = subprocess.Popen(_command(broken, options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(timeout=after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    rows, saved = len(_rows(broken)), broken.checkpoint.exists()
    resume = ["--resume"] if broken.config.exists() else []
    subprocess.run(_command(broken, [*options, *resume]), check=True, capture_output=True)
    same_checkpoint = broken.checkpoint.read_bytes() == whole.checkpoint.read_bytes()
    same_details = broken.details_file.read_bytes() == whole.details_file.read_bytes()
    return Case(after, rows, saved, same_checkpoint, _rows(broken) == _rows(whole), same_details)


def _rows(directory: RunDirectory) -> list[Row]:
    return [replace(row, seconds=0.0) for row in directory.rows()]


def _command(directory: RunDirectory, options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "feddst", "run", "--out", str(directory.path), *options]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the record")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases = kill_and_resume(args.kills, Path(folder), OPTIONS, args.seed)
    for case in cases:
        verdict = "same" if case.same else "DIFFERENT"
        print(f"killed after {case.after_seconds:5.2f} s with {case.rows_at_kill:2d} rounds on record: {verdict}")
    record = {"command": " ".join(["python", *sys.argv]), "options": OPTIONS, "cases": [asdict(case) for case in cases]}
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(case.same for case in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
