"""docs/extend-optimizer.md: its optimizer and its schedule do what they say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from feddst.cli.main import main
from feddst.core import OPTIMIZERS, SCHEDULES, LocalOptimizer, LocalTraining
from feddst.plugins import load_plugins
from feddst.runtime import toml

SMALL = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1 --engine.workers 1"


@pytest.mark.usefixtures("tiny_mnist")
def test_the_page_runs_as_it_stands(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-optimizer")
    page.install(workshop)
    left = page.run()
    printed = capsys.readouterr().out
    assert printed.startswith("lion: ")
    assert "\nlion-steady: " in printed
    assert left["result"].config.local.optimizer == "lion-steady"
    assert left["result"].summary.final > 0.3


def test_the_optimizer_by_hand(code_page: Callable[[str], Any], workshop: Path) -> None:
    """m = 0, g = 4: θ falls by η, m = 0.04. Then g = −0.5: 0.9·0.04 − 0.1·0.5 < 0, so θ rises by η, m = 0.0346."""
    code_page("extend-optimizer").install(workshop)
    load_plugins()
    lion, local = OPTIMIZERS["lion"], LocalTraining(lr=0.25)
    assert isinstance(lion, LocalOptimizer)
    theta, slots = torch.tensor([1.0, 0.0]), {"momentum": torch.zeros(2)}
    lion.step(theta, torch.tensor([4.0, 0.0]), slots, local, 0)
    assert theta.tolist() == [0.75, 0.0]
    lion.step(theta, torch.tensor([-0.5, 0.0]), slots, local, 1)
    assert theta.tolist() == [1.0, 0.0]  # the second one is masked out: nothing changes there
    torch.testing.assert_close(slots["momentum"], torch.tensor([0.0346, 0.0]))


def test_the_schedule_by_hand(code_page: Callable[[str], Any], workshop: Path) -> None:
    code_page("extend-optimizer").install(workshop)
    load_plugins()
    assert [SCHEDULES["root"].factor(round, 0) for round in (1, 4, 16)] == [1, 0.5, 0.25]


@pytest.mark.usefixtures("tiny_mnist")
def test_its_commands_work_once_they_are_installed(code_page: Callable[[str], Any], workshop: Path) -> None:
    page = code_page("extend-optimizer")
    page.install(workshop)
    load_plugins()
    for number, call in enumerate(page.commands()):
        assert main([*call, *SMALL.split(), "--out", f"{number}"]) == 0
        assert toml.read(workshop / f"{number}/config.toml")["local.optimizer"] == "lion"
