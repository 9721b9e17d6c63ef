"""docs/extend-objective.md: its loss is what it says, and its metric is what is reported."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from feddst.cli.main import main
from feddst.core import OBJECTIVES, Mean
from feddst.plugins import load_plugins
from feddst.runtime import toml

SMALL = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1 --engine.workers 1"


@pytest.mark.usefixtures("tiny_mnist")
def test_the_page_runs_as_it_stands(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-objective")
    page.install(workshop)
    left = page.run()
    printed = capsys.readouterr().out
    assert printed.startswith("0.75 2.0\n")
    assert "among the best three, loss 0." in printed
    assert left["result"].summary.metric.name == "top3"
    assert left["result"].summary.final > 0.8


def test_the_loss_and_the_metric_by_hand(code_page: Callable[[str], Any], workshop: Path) -> None:
    """Scores (0, 0) give p = 1/2 and (1/2)²·ln 2; with (ln 3, 0) p = 3/4, and (1/4)²·ln(4/3)."""
    code_page("extend-objective").install(workshop)
    load_plugins()
    focal = OBJECTIVES["focal"]
    outputs, targets = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]]), torch.tensor([1, 0])
    losses = math.log(2) / 4, math.log(4 / 3) / 16
    assert float(focal.loss(outputs, targets)) == pytest.approx(sum(losses) / 2)
    assert float(focal.loss(outputs, targets, "sum")) == pytest.approx(sum(losses))
    places = torch.tensor([[4.0, 3.0, 2.0, 1.0]]).repeat(4, 1)
    [top3] = focal.metrics
    assert isinstance(top3, Mean)
    assert top3.added(places, torch.arange(4)).tolist() == [[1, 1], [1, 1], [1, 1], [0, 1]]
    assert top3.text(top3.of(top3.added(places, torch.arange(4)))) == "75.0 %"
    assert top3.of(top3.added(outputs, targets)) == 1


@pytest.mark.usefixtures("tiny_mnist")
def test_its_commands_work_once_it_is_installed(code_page: Callable[[str], Any], workshop: Path) -> None:
    page = code_page("extend-objective")
    page.install(workshop)
    load_plugins()
    for number, call in enumerate(page.commands()):
        assert main([*call, *SMALL.split(), "--out", f"{number}"]) == 0
        assert toml.read(workshop / f"{number}/config.toml")["local.objective"] == "focal"
        last = json.loads((workshop / f"{number}/metrics.jsonl").read_text().splitlines()[-1])
        assert {"top3", "top3_worst", "top3_global"} <= last.keys()
        assert "accuracy" not in last
