"""The notebook is a sound one, and its cells run from top to bottom."""

import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = json.loads((ROOT / "examples/figure.ipynb").read_text())
CELLS: list[dict[str, Any]] = NOTEBOOK["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
SMALL = {"data": {"clients": 20}, "cohort": {"size": 2}, "local": {"epochs": 1}}
ROUNDS = {"fedprox": 1, "feddst+fedprox": 5, "fedavgm": 1, "randommask": 5, "feddst": 5}
"""What goes into 0.002 GiB: a fifth of the weights five times."""


def test_it_has_the_form_that_jupyter_reads() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert NOTEBOOK["metadata"]["kernelspec"]["name"] == "python3"
    names = [cell["id"] for cell in CELLS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    for cell in CELLS:
        needed = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            needed |= {"execution_count", "outputs"}
            assert not [output for output in cell["outputs"] if output["output_type"] == "error"]
        assert cell.keys() == needed
        assert all(line.endswith("\n") for line in cell["source"][:-1])


def test_its_outputs_are_of_one_run_from_top_to_bottom() -> None:
    counts = [cell["execution_count"] for cell in CELLS if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(CODE) + 1))
    [picture] = [cell for cell in CELLS if cell["id"] == "figure"]
    assert "image/png" in picture["outputs"][0]["data"]


@pytest.mark.usefixtures("little_mnist")
def test_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """From the folder it is in, where Jupyter starts it; its own runs are a few small rounds."""
    monkeypatch.chdir(ROOT / "examples")
    matplotlib.use("agg")
    names: dict[str, Any] = {"__name__": "notebook"}
    settings, *rest = CODE
    exec(compile(settings, "settings", "exec"), names)
    assert names.keys() >= {"CAP_GIB", "OPTIONS"}
    names |= {"CAP_GIB": 0.002, "OPTIONS": SMALL}
    for source in rest:
        exec(compile(source, "figure.ipynb", "exec"), names)
    assert [len(axes.lines) for axes in names["panels"]] == [4, 6]
    assert {name: run.summary.rounds for name, run in names["live"].items()} == ROUNDS
    assert "FedDST + FedProx (μ = 1)         97.26       97.87       98.15       98.27" in capsys.readouterr().out
    plt.close(names["figure"])


def test_it_finds_the_record_from_the_checkout_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": "notebook"}
    exec(compile(CODE[1], "figure.ipynb", "exec"), names)
    assert names["record"].seeds == 10
