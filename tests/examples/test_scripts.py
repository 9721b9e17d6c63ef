"""The example scripts do what they say."""

import itertools
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_own_model(capsys: pytest.CaptureFixture[str]) -> None:
    names = runpy.run_path(str(EXAMPLES / "own_model.py"))
    out = capsys.readouterr().out
    assert names["last"].accuracy > 0.85
    assert "after 30 rounds, with 20% of the weights" in out
    assert f"{names['last'].upload_bytes / 2**20:.2f} MiB sent up" in out
    assert re.search(r"the first test image: (\w+); the model says (lying|standing|slanting)$", out)


@pytest.mark.usefixtures("little_mnist")
def test_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--levels 0.5,0.9 --codecs float32,q4 --rounds 1 --clients 20 --out runs/sweep"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sweep.py", *words.split()])
    runpy.run_path(str(EXAMPLES / "sweep.py"), run_name="__main__")
    seen = capsys.readouterr()
    for level, codec in itertools.product(("0.5", "0.9"), ("float32", "q4")):
        assert f"feddst:sparsity.level={level}:wire.values={codec}, seed 0, round 1: " in seen.err
    heading, *rows, picture = seen.out.splitlines()
    assert heading.split() == ["sparsity", "float32", "q4"]
    assert [row.split()[0] for row in rows] == ["0.5", "0.9"]
    sent = [[float(upload) for upload in re.findall(r"([\d.]+) MiB", row)] for row in rows]
    # A tenth of the weights costs a fifth of what half of them do, and four bits an eighth of 32, apart from headers.
    assert sent[0][0] / sent[1][0] == pytest.approx(5, rel=0.1)
    assert sent[0][0] / sent[0][1] == pytest.approx(8, rel=0.15)
    assert picture.split() == ["picture", "runs/sweep/sweep.png"]
    assert (tmp_path / "runs/sweep/sweep.png").read_bytes().startswith(b"\x89PNG")


def test_each_example_is_listed() -> None:
    """With a line that names it, in the folder's README."""
    page = (EXAMPLES / "README.md").read_text()
    own = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith((".", "_"))}
    assert own - {"README.md"} == set(re.findall(r"^\| \[.*?\]\((.*?)\)", page, re.MULTILINE))


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data in the form of scikit-learn's, which is not needed then: the first two numbers decide."""
    rng = np.random.default_rng(3)

    def bunch(patients: int, numbers: int) -> SimpleNamespace:
        data = rng.normal(size=(patients, numbers))
        return SimpleNamespace(data=data, target=100 + 40 * (data[:, 0] - data[:, 1]))

    diabetes, cells = bunch(442, 10), bunch(569, 30)
    cells.target = (cells.target > 100).astype(int)
    module = ModuleType("sklearn.datasets")
    module.load_diabetes, module.load_breast_cancer = lambda: diabetes, lambda: cells  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sklearn", ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", module)


@pytest.mark.usefixtures("made_up")
def test_regression(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "diabetes.py"))
    found = re.findall(r"^(.+): an error of ([\d.]+)(?: after ([\d,]+) KiB sent up)?$", capsys.readouterr().out, re.M)
    assert [who for who, _, _ in found] == ["always the mean", "fedavgm", "feddst"]
    mean, dense, sparse = (float(error) for _, error, _ in found)
    assert max(dense, sparse) < mean / 2
    assert int(found[2][2].replace(",", "")) < int(found[1][2].replace(",", "")) / 3


@pytest.mark.usefixtures("made_up")
def test_a_yes_or_a_no(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "breast_cancer.py"))
    found = re.findall(r"(\w+): ([\d.]+)% of all .* curve ([\d.]+), after ([\d,]+) KiB", capsys.readouterr().out)
    assert [method for method, *_ in found] == ["fedavgm", "feddst"]
    for _, accuracy, area, _ in found:
        assert float(accuracy) > 70
        assert float(area) > 0.8
