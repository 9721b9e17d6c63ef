"""docs/extend-data.md: its source is found by every command, and says what is wrong with a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feddst
from feddst.cli.main import main
from feddst.errors import DataError, FeddstError, OptionError
from feddst.plugins import load_plugins

SMALL = "--local.epochs 1 --engine.workers 1"


@pytest.fixture
def shapes(code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the page's Python prints, after it has written shapes.npz."""
    page = code_page("extend-data")
    page.install(workshop)
    page.run()
    return capsys.readouterr().out


def test_the_page_runs_as_it_stands(shapes: str) -> None:
    assert int(shapes.removesuffix("%\n")) > 80


@pytest.mark.usefixtures("shapes")
def test_what_is_wrong_with_a_file_is_said(workshop: Path) -> None:
    def load(root: str) -> None:
        feddst.run(feddst.configure(data={"dataset": "npz", "root": root}))

    with pytest.raises(OptionError, match=r"data\.root must name an \.npz file"):
        load("")
    with pytest.raises(DataError, match=r"nothing\.npz cannot be read: .*No such file"):
        load("nothing.npz")
    (workshop / "broken.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"broken\.npz cannot be read"):
        load("broken.npz")
    np.savez(workshop / "half.npz", train_inputs=np.zeros((4, 1, 14, 14)), train_labels=np.zeros(4, int))
    with pytest.raises(DataError, match=r"half\.npz cannot be read: .*test_inputs"):
        load("half.npz")
    with pytest.raises(OptionError, match=r"data\.dataset must be one of .*npz, got 'npy'; did you mean 'npz'"):
        feddst.configure(data={"dataset": "npy"})


@pytest.mark.usefixtures("shapes")
def test_a_run_is_not_resumed_with_other_data(workshop: Path) -> None:
    small: dict[str, Any] = {"clients": 4, "images_per_class": 5, "dataset": "npz", "root": "shapes.npz"}

    def go_on(rounds: int, *, resume: bool) -> None:
        config = feddst.configure(rounds=rounds, data=small, cohort={"size": 2}, local={"epochs": 1})
        feddst.run(config, out="mine", resume=resume)

    go_on(1, resume=False)
    with np.load("shapes.npz") as arrays:
        np.savez(workshop / "shapes.npz", **{**arrays, "train_inputs": 1 + arrays["train_inputs"]})
    with pytest.raises(FeddstError, match="was written with another model or other data"):
        go_on(2, resume=True)


@pytest.mark.usefixtures("shapes")
def test_its_commands_work_once_it_is_installed(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_plugins()
    shown = []
    for call in code_page("extend-data").commands():
        assert main([*call, *(SMALL.split() if call[0] == "run" else [])]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0].startswith("shapes, 10 clients, classes partition (2 × 50 images), seed 0")
    assert "fc2.weight" in shown[1]
    [run] = [path.parent for path in workshop.glob("runs/*/config.toml")]
    assert main(["export", str(run), "--out", "model.safetensors"]) == 0
    assert "4 classes, in the order of the scores: 0, 1, 2, 3." in (workshop / "model.safetensors.md").read_text()
