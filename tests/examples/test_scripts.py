"""The example scripts do what they say."""

import itertools
import re
import runpy
import sys
from pathlib import Path

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
