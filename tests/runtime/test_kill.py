"""A run killed with SIGKILL and resumed from the command line ends with the same bytes."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

OPTIONS = [
    "--rounds=8",
    "--eval-every=8",
    "--checkpoint-every=3",
    "--data.clients=10",
    "--cohort.size=4",
    "--local.epochs=2",
    "--readjust.every=2",
    "--readjust.until=8",
    "--readjust.alpha=0.2",
    "--engine.workers=1",
]


def test_two_kills(tmp_path: Path, script_named: Callable[[str], ModuleType]) -> None:
    cases = script_named("kill_and_resume").kill_and_resume(kills=2, folder=tmp_path, options=OPTIONS, seed=1)
    assert len(cases) == 2
    assert all(case.same for case in cases), cases
