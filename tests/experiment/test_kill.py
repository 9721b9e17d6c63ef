"""A run killed with SIGKILL and resumed from the command line ends with the same bytes."""

import importlib.util
import sys
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


def script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "kill_and_resume.py"
    spec = importlib.util.spec_from_file_location("kill_and_resume", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_three_kills(tmp_path: Path) -> None:
    cases = script().kill_and_resume(kills=3, folder=tmp_path, options=OPTIONS, seed=1)
    assert len(cases) == 3
    assert all(case.same for case in cases), cases
