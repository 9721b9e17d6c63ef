"""Damage each file of a run at random, resume the run, and check that it never ends with a wrong result.

    python scripts/damage_and_resume.py --each 67 --out results/damage-and-resume.json

A run on bundled MNIST is killed between two checkpoints, and another one finishes. In a copy of each, one file
is damaged: a bit is flipped, some bytes are zeroed, or the file is cut. Then the run is resumed. That must be refused,
or end with the same bytes as the undamaged run: the model, the details, the config, and rows and summary apart
from timings.
"""

import argparse
import contextlib
import json
import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from feddst import run
from feddst.errors import CheckpointError
from feddst.options import updated
from feddst.runtime import Row, RunConfig
from feddst.runtime.loop import Silent
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory

OPTIONS = {
    "rounds": 6,
    "eval_every": 2,
    "checkpoint_every": 2,
    "data.clients": 8,
    "cohort.size": 3,
    "local.epochs": 1,
    "readjust.every": 2,
    "readjust.until": 6,
    "readjust.alpha": 0.2,
    "engine.workers": 1,
}
KILLED_IN = 5
"""The round whose row is the last that was written when the run was killed; its checkpoint was not due."""

Outcome = Literal["refused", "same", "WRONG"]
Play = Callable[..., object]


@dataclass(frozen=True)
class Case:
    """What was done to which file of which run, and the outcome: the error, if there was one."""

    run: str
    file: str
    damage: str
    outcome: Outcome
    error: str


class KilledError(BaseException):
    """Stands for a kill: no `except Exception` catches it."""


class Killer(Silent):
    """Ends the run once a round's row is written."""

    def row(self, run: Run, row: Row) -> None:
        if row.round == KILLED_IN:
            raise KilledError


def damage_and_resume(each: int, folder: Path, config: RunConfig, seed: int, **given: Any) -> list[Case]:
    """`each` damages of every file of both runs; `given` goes to `feddst.run`."""

    def play(path: Path, watcher: Silent, *, resume: bool = False) -> None:
        run(config, out=path, resume=resume, watcher=watcher, **given)

    play(folder / "finished", Silent())
    with contextlib.suppress(KilledError):
        play(folder / "killed", Killer())
    draws = random.Random(seed)
    whole = contents(folder / "finished")
    return [
        _case(standing, file.name, play, whole, draws)
        for standing in (folder / "killed", folder / "finished")
        for file in sorted(standing.iterdir())
        for _ in range(each)
    ]


def contents(path: Path) -> list[object]:
    """What must be the same in the end."""
    directory = RunDirectory(path)
    summary = directory.finished()
    return [
        directory.checkpoint.read_bytes(),
        directory.config.read_bytes(),
        directory.details(),
        [replace(row, seconds=0.0) for row in directory.rows()],
        None if summary is None else replace(summary, seconds=0.0),
    ]


def harmed(content: bytes, draws: random.Random) -> tuple[str, bytes]:
    """What was done, and what is left."""
    kind, place = draws.choice(["flipped", "zeroed", "cut"]), draws.randrange(len(content))
    if kind == "cut":
        return f"cut to {place} bytes", content[:place]
    if kind == "flipped":
        bit = draws.randrange(8)
        flipped = bytes([content[place] ^ 1 << bit])
        return f"bit {bit} of byte {place} flipped", content[:place] + flipped + content[place + 1 :]
    count = min(draws.randint(1, 64), len(content) - place)
    return f"{count} bytes from {place} zeroed", content[:place] + bytes(count) + content[place + count :]


def _case(standing: Path, name: str, play: Play, whole: list[object], draws: random.Random) -> Case:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        shutil.copytree(standing, path)
        damage, content = harmed((path / name).read_bytes(), draws)
        (path / name).write_bytes(content)
        outcome, error = _resumed(path, play, whole)
    return Case(standing.name, name, damage, outcome, error.replace(folder, ""))


def _resumed(path: Path, play: Play, whole: list[object]) -> tuple[Outcome, str]:
    try:
        play(path, Silent(), resume=True)
    except CheckpointError as error:
        return "refused", str(error)
    try:
        return ("same" if contents(path) == whole else "WRONG"), ""
    except CheckpointError as error:
        return "WRONG", str(error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=67, help="how often each file is damaged")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the record")
    args = parser.parse_args()
    logging.disable()  # hundreds of warnings that a run goes on from the checkpoint before
    with tempfile.TemporaryDirectory() as folder:
        cases = damage_and_resume(args.each, Path(folder), updated(RunConfig(), OPTIONS), args.seed)
    counts = Counter((case.run, case.file, case.outcome) for case in cases)
    for (run_name, file, outcome), count in sorted(counts.items()):
        print(f"{run_name} run, {file}: {count} {outcome}")
    record = {"command": " ".join(["python", *sys.argv]), "options": OPTIONS, "cases": [asdict(case) for case in cases]}
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(case.outcome == "WRONG" for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
