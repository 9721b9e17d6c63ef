"""docs/extend-aggregator.md: its median is the median, in Python, from the command line and over any engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import feddst
from feddst.cli.main import main
from feddst.core import AGGREGATORS, Update
from feddst.errors import OptionError
from feddst.plugins import load_plugins
from feddst.runtime import toml

SMALL = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1"


@pytest.mark.usefixtures("tiny_mnist")
def test_the_page_runs_as_it_stands(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-aggregator")
    page.install(workshop)
    left = page.run()
    printed = capsys.readouterr().out
    assert page.shown("text") in printed
    runs = left["runs"]
    assert {name: run.config.aggregator.kind for name, run in runs.items()} == {name: name for name in runs}
    assert f"median: {runs['median'].summary.final:.0%}\n" in printed
    assert all(run.summary.final > 0.3 for run in runs.values())  # ten classes: chance is 0.1
    median, mean = (runs[name].model.state_dict() for name in ("median", "mean"))
    assert not any(torch.equal(value, mean[name]) for name, value in median.items())


def test_it_is_the_median_of_those_who_hold_a_weight(code_page: Callable[[str], Any], workshop: Path) -> None:
    code_page("extend-aggregator").install(workshop)
    load_plugins()
    kind = AGGREGATORS["median"]

    @given(st.lists(st.tuples(st.booleans(), st.floats(-1e6, 1e6, width=32)), min_size=1, max_size=9))
    def check(answers: list[tuple[bool, float]]) -> None:
        total = kind({})
        for client, (holds, value) in enumerate(answers):
            masks = {"w": torch.tensor([holds, True])}
            values = torch.tensor([value, 1.0] if holds else [1.0])
            total.add(Update(client, 1, 1 + client, {"w": values}, masks=masks))
        held = sorted(value for holds, value in answers if holds)
        middle = (held[(len(held) - 1) // 2] + held[len(held) // 2]) / 2 if held else -7.0
        found = total.mean(otherwise={"w": torch.full((2,), -7.0)})["w"]
        torch.testing.assert_close(found, torch.tensor([middle, 1.0]))

    check()


@pytest.mark.usefixtures("tiny_mnist")
def test_its_command_works_once_it_is_installed(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-aggregator")
    page.install(workshop)
    with pytest.raises(OptionError, match=r"aggregator\.kind must be one of mean, trimmed-mean, got 'median'"):
        feddst.configure(aggregator={"kind": "median"})
    load_plugins()
    [call] = page.commands()
    assert main([*call, *SMALL.split()]) == 0
    [config] = workshop.glob("runs/*/config.toml")
    assert toml.read(config)["aggregator.kind"] == "median"


@pytest.mark.usefixtures("tiny_mnist")
def test_a_stacked_engine_leaves_it_to_the_reference_engine(
    code_page: Callable[[str], Any], workshop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code_page("extend-aggregator").install(workshop)
    load_plugins()
    small: dict[str, Any] = {"data": {"clients": 4, "images_per_class": 5}, "cohort": {"size": 3}, "rounds": 1}

    def weights(kind: str) -> dict[str, torch.Tensor]:
        engine = {"kind": kind, "workers": 1}
        config = feddst.configure(aggregator={"kind": "median"}, engine=engine, local={"epochs": 1}, **small)
        return feddst.run(config).model.state_dict()

    expected = weights("reference")
    assert "aggregator.kind" not in caplog.text
    assert all(torch.equal(value, expected[name]) for name, value in weights("stacked").items())
    assert "the stacked engine adds updates up itself, and aggregator.kind is median" in caplog.text
