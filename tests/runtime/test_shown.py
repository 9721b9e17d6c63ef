"""A result in lines, in a notebook, as a table of pandas and as a picture."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from torch import nn

from feddst.data import Dataset
from feddst.errors import OptionError
from feddst.runtime import Result, RunConfig, run
from feddst.runtime.checksums import unseal_lines
from feddst.runtime.loop import Silent


@pytest.fixture
def result(small_config: Callable[..., RunConfig], small_data: Dataset, tmp_path: Path) -> Result:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
    config = small_config(rounds=4, sparsity__level=0.5)
    return run(config, model=model, data=small_data, out=tmp_path / "a", watcher=Silent())


def test_a_result_in_lines(result: Result) -> None:
    found = result.summary
    up, down = found.upload_bytes / 2**10, found.download_bytes / 2**10
    assert repr(result).splitlines() == [
        "Result of feddst, seed 0: 4 rounds, finished",
        f"  accuracy  best {100 * found.best:.1f} % in round {found.best_round}, final {100 * found.final:.1f} %",
        f"  sent      {up:,.1f} KiB up, {down:,.1f} KiB down",
        "  weights   50.0 % of the prunable ones are active",
        f"  in        {result.path}",
    ]


def test_a_result_in_a_notebook_has_a_curve(result: Result) -> None:
    tree = ElementTree.fromstring(result._repr_html_())
    assert [cell.text for cell in tree.iter("td")][0::2] == ["accuracy", "sent", "weights", "in"]
    [line] = tree.iter("polyline")
    assert len(line.attrib["points"].split()) == 2  # an evaluation in round 2 and in round 4


def test_a_result_as_a_table_of_pandas(result: Result) -> None:
    frame = result.to_pandas()
    assert result.path is not None
    lines = unseal_lines((result.path / "metrics.jsonl").read_bytes())
    stored = [json.loads(line.content) for line in lines]
    assert list(frame.index) == [1, 2, 3, 4]
    assert set(frame.columns) == set(stored[0]) - {"round"}
    assert list(frame["upload_bytes"]) == [row["upload_bytes"] for row in stored]
    assert frame["accuracy"].dropna().tolist() == [row["accuracy"] for row in stored if row["accuracy"] is not None]


def test_without_pandas_a_line_names_the_remedy(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OptionError, match=r"to_pandas needs pandas: pip install 'feddst\[notebook\]'"):
        result.to_pandas()


def test_a_picture_has_the_evaluations(result: Result) -> None:
    import matplotlib.pyplot as plt

    axes = result.plot()
    seen = [row for row in result.rows if row.accuracy is not None]
    [line] = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), [row.upload_bytes / 2**20 for row in seen])
    np.testing.assert_array_equal(line.get_ydata(), [100 * (row.accuracy or 0) for row in seen])
    assert axes.get_xlabel() == "upload [MiB], measured"
    assert result.plot(against="round", axes=axes) is axes
    np.testing.assert_array_equal(axes.lines[1].get_xdata(), [2, 4])
    plt.close("all")


def test_a_picture_against_something_else_is_refused(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="against must be one of upload, round, got 'time'"):
        result.plot(against="time")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(OptionError, match=r"pictures need matplotlib: pip install 'feddst\[notebook\]'"):
        result.plot()
