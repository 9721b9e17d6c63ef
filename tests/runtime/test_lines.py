"""A Python user sees a line for each evaluation, and nothing when a watcher of their own is given."""

from collections.abc import Callable

import pytest
from torch import nn

from feddst.data import Dataset
from feddst.runtime import RunConfig, run
from feddst.runtime.loop import Silent


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 4))


def test_each_evaluation_is_a_line(
    small_config: Callable[..., RunConfig], small_data: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(small_config(rounds=4), model=network, data=small_data)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["feddst, seed 0, round 2", "feddst, seed 0, round 4"]
    assert f"accuracy {100 * result.summary.final:.1f} %" in lines[-1]
    run(small_config(rounds=4), model=network, data=small_data, watcher=Silent())
    assert capsys.readouterr().err == ""
