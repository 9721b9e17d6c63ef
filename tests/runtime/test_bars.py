"""In a notebook each run is one output that is drawn again; a stand-in for IPython notes what is drawn."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch import nn

import feddst
from feddst.data import Dataset
from feddst.runtime import Row, RunConfig, bars, run
from feddst.runtime.run import Run
from feddst.studies import CompareConfig

Configure = Callable[..., RunConfig]


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 4))


class Handle:
    """What `display` returns for a place that can be drawn again."""

    def __init__(self, shown: Any) -> None:
        self.drawn = [shown]

    def update(self, shown: Any) -> None:
        self.drawn.append(shown)

    @property
    def texts(self) -> list[str]:
        return [repr(shown).partition(", upload")[0] for shown in self.drawn]


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    """A Jupyter kernel's outputs."""
    made: list[Handle] = []

    def display(shown: Any, *, display_id: bool) -> Handle:
        assert display_id
        made.append(Handle(shown))
        return made[-1]

    ipython, shows = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    ipython.version_info = (9, 0)  # type: ignore[attr-defined]  # matplotlib asks for it
    shows.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shows)
    monkeypatch.setattr(bars, "EVERY", 0.0)
    return made


class Stop(feddst.Callback):
    def on_round_end(self, run: Run, row: Row) -> None:
        self.stop_training = True


def test_a_run_is_one_output(
    outputs: list[Handle], small_config: Configure, small_data: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(small_config(rounds=3), model=network, data=small_data)
    [output] = outputs
    two, three = (f"{100 * (result.rows[i].accuracy or 0):.1f} %" for i in (1, 2))
    assert output.texts == [
        "feddst, seed 0, before the first round",
        "feddst, seed 0, 1 round, no evaluation yet",
        f"feddst, seed 0, round 2: accuracy {two}",
        f"feddst, seed 0, round 3: accuracy {three}",
        f"feddst, seed 0, finished; round 3: accuracy {three}",
    ]
    done = [re.findall(r'<progress value="([\d.]+)" max="1"', shown._repr_html_()) for shown in output.drawn]
    assert done == [["0.000"], ["0.333"], ["0.667"], ["1.000"], ["1.000"]]
    assert capsys.readouterr().err == ""


def test_a_stopped_run_says_so_and_goes_on_with_a_bar_of_its_own(
    outputs: list[Handle], small_config: Configure, small_data: Dataset, tmp_path: Path
) -> None:
    where: dict[str, Any] = {"model": network, "data": small_data, "out": tmp_path / "a"}
    run(small_config(rounds=3), **where, callbacks=[Stop()])
    assert outputs[0].texts[-1] == "feddst, seed 0, stopped; 1 round, no evaluation yet"
    run(small_config(rounds=3), **where, resume=True)
    assert outputs[1].texts[0] == "feddst, seed 0, 1 round, no evaluation yet"
    assert outputs[1].texts[-1].startswith("feddst, seed 0, finished; round 3")


def test_a_failed_run_says_so(outputs: list[Handle], small_config: Configure, small_data: Dataset) -> None:
    class Broken(feddst.Callback):
        def on_round_end(self, run: Run, row: Row) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(small_config(rounds=3), model=network, data=small_data, callbacks=[Broken()])
    assert outputs[0].texts[-1] == "feddst, seed 0, failed; 1 round, no evaluation yet"


def test_rounds_that_pass_quickly_are_not_all_drawn(
    outputs: list[Handle], small_config: Configure, small_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "EVERY", 1000.0)
    run(small_config(rounds=6), model=network, data=small_data)
    first, last = outputs[0].texts
    assert first.endswith("before the first round")
    assert last.startswith("feddst, seed 0, finished; round 6")


def test_each_run_of_a_comparison_has_a_bar_with_its_name(
    outputs: list[Handle], small_config: Configure, small_data: Dataset, tmp_path: Path
) -> None:
    config = CompareConfig(methods=("fedavg", "feddst:sparsity.level=0.5"), base=small_config(rounds=2))
    feddst.compare(config, model=network, data=small_data, out=tmp_path / "two")
    assert [output.texts[-1].partition(", finished")[0] for output in outputs] == [
        "fedavg, seed 0",
        "feddst:sparsity.level=0.5, seed 0",
    ]
