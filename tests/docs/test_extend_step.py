"""docs/extend-step.md: its step clips, and travels by name; what does not know it says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import feddst
from feddst.cli.main import main
from feddst.core import ClientPlan, LocalTraining
from feddst.core.step import STEPS
from feddst.errors import OptionError, WireError
from feddst.flower.tasks import read_task, write_task
from feddst.plugins import load_plugins
from feddst.runtime import toml
from feddst.wire import ClientTask, Message

SMALL = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1 --engine.workers 1"


@pytest.mark.usefixtures("tiny_mnist")
def test_the_page_runs_as_it_stands(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-step")
    page.install(workshop)
    left = page.run()
    assert left["config"].group("clip").norm == 0.5
    assert int(capsys.readouterr().out.removesuffix("%\n")) > 50


def test_the_step_by_hand(code_page: Callable[[str], Any], workshop: Path) -> None:
    """(3, 4) has length 5."""
    code_page("extend-step").install(workshop)
    load_plugins()
    gradient, still = torch.tensor([3.0, 4.0]), torch.zeros(2)
    for norm, left in ((7.0, [3.0, 4.0]), (1.0, [0.6, 0.8])):
        STEPS["clip"](norm).at_gradient(gradient, still, still)  # type: ignore[call-arg]
        torch.testing.assert_close(gradient, torch.tensor(left))
    STEPS["clip"](1.0).at_gradient(still, still, still)  # type: ignore[call-arg]
    assert still.tolist() == [0.0, 0.0]


def test_its_option_is_checked_and_refused_for_others(code_page: Callable[[str], Any], workshop: Path) -> None:
    code_page("extend-step").install(workshop)
    load_plugins()
    with pytest.raises(OptionError, match=r"clip\.norm must be above 0, got 0"):
        feddst.configure(method="feddst+clip", clip={"norm": 0.0})
    with pytest.raises(OptionError, match=r"clip\.norm has no effect on feddst"):
        feddst.configure(clip={"norm": 0.5})


def test_it_travels_by_name_and_is_refused_where_it_is_unknown(code_page: Callable[[str], Any], workshop: Path) -> None:
    code_page("extend-step").install(workshop)
    load_plugins()

    def sent(norm: float) -> str:
        plan = ClientPlan(LocalTraining(), steps=(STEPS["clip"](norm),))  # type: ignore[call-arg]
        return write_task("run", ClientTask(3, 7, plan, Message(b"")))

    assert read_task(sent(0.5), Message(b""))[1].plan.steps == (STEPS["clip"](0.5),)  # type: ignore[call-arg]
    with pytest.raises(WireError, match="norm must be above 0, got -1"):
        read_task(sent(-1.0), Message(b""))
    known = sent(0.5)
    del STEPS["clip"]
    with pytest.raises(WireError, match="is a step that is not known here: 'clip'; install what registers it"):
        read_task(known, Message(b""))


@pytest.mark.usefixtures("tiny_mnist")
def test_its_commands_work_once_it_is_installed(code_page: Callable[[str], Any], workshop: Path) -> None:
    page = code_page("extend-step")
    page.install(workshop)
    load_plugins()
    for number, call in enumerate(page.commands()):
        assert main([*call, *SMALL.split(), "--out", f"{number}"]) == 0
        assert toml.read(workshop / f"{number}/config.toml")["clip.norm"] == 0.5
