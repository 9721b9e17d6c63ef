"""Early stopping: when it ends a run, by hand, and the same after a run is resumed."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import feddst
from feddst import EarlyStopping
from feddst.core import Metric
from feddst.data import Dataset
from feddst.errors import OptionError
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import ACCURACY, Row

EMPTY: dict[str, Any] = dict.fromkeys(Row.__dataclass_fields__, 0) | {"metric": ACCURACY, "others": {}}
RMSE = Metric("rmse", higher_is_better=False)


def stopped_at(
    stopping: EarlyStopping, values: list[float | None], column: str = "score", had: int = 0, metric: Metric = ACCURACY
) -> int:
    """The round in which it ends a run with these values, of which it `had` some before; 0 if none."""
    nothing = replace(Row(**EMPTY).unevaluated(), metric=metric)
    known: list[dict[str, Any]] = [{column: value} for value in values]
    rows = [replace(nothing, round=i, **one) for i, one in enumerate(known, 1)]
    run: Any = SimpleNamespace(rows=rows[:had], stopped_by="", metrics=[metric])
    stopping.started([run])
    for row in rows[had:]:
        stopping.row(run, row)
        if stopping.stop():
            return row.round
    return 0


def test_patience_by_hand() -> None:
    """The best is in round 2; 0.6 again is no gain. Rounds without an evaluation do not count."""
    values = [0.5, 0.6, None, 0.6, None, 0.55, 0.7]
    stopping = EarlyStopping(patience=2)
    assert stopped_at(stopping, values) == 6
    assert (stopping.best, stopping.best_round, stopping.stopped_round) == (0.6, 2, 6)
    assert stopped_at(EarlyStopping(patience=3), values) == 0  # 0.7 comes in time
    assert stopped_at(EarlyStopping(patience=3, min_delta=0.2), values) == 6  # all within 0.2 of 0.5


def test_less_is_better_for_a_loss() -> None:
    assert stopped_at(EarlyStopping(patience=2, metric="loss"), [1.0, 0.9, 0.95, 0.8, 0.8, 0.9], "loss") == 6
    assert (
        stopped_at(EarlyStopping(patience=2, metric="loss"), [float("nan"), 0.9, 0.8, float("nan"), 0.8], "loss") == 5
    )


def test_the_direction_is_the_metrics_own() -> None:
    values = [1.0, 0.9, 0.95, 0.8, 0.8, 0.9]
    assert stopped_at(EarlyStopping(patience=2), list(values), metric=RMSE) == 6
    assert stopped_at(EarlyStopping(patience=2, metric="rmse_worst"), list(values), "score_worst", metric=RMSE) == 6


@pytest.mark.parametrize("had", [1, 3, 5])
def test_a_resumed_run_ends_where_an_unbroken_one_does(had: int) -> None:
    assert stopped_at(EarlyStopping(patience=3), [0.5, 0.6, 0.6, None, 0.4, 0.3, 0.2], had=had) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience must be a whole number of evaluations, at least 1, got 0"),
        ({"patience": 1.5}, "patience must be a whole number of evaluations, at least 1, got 1.5"),
        ({"min_delta": -1}, "min_delta must be at least 0, got -1"),
    ],
)
def test_bad_values_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        EarlyStopping(**options)


def test_a_column_that_the_run_does_not_have_is_refused() -> None:
    with pytest.raises(OptionError, match=r"metric must be one of accuracy, .* got 'acuracy'; did you mean 'accuracy'"):
        stopped_at(EarlyStopping(metric="acuracy"), [0.5])


@pytest.fixture
def noise() -> Dataset:
    """Nothing can be learned from it."""
    draws = torch.Generator().manual_seed(0)
    images, labels = torch.randn(80, 1, 4, 4, generator=draws), torch.arange(80) % 4
    return Dataset.from_arrays((images, labels), (images, labels))


def test_a_run_that_does_not_improve_is_stopped(noise: Dataset) -> None:
    config = feddst.configure(
        method="fedavg",
        rounds=9,
        eval_every=1,
        data={"partition": "iid", "clients": 4, "classes_per_client": 1, "images_per_class": 10},
        cohort={"size": 2},
        local={"epochs": 1, "lr": 1e-9},
        engine={"workers": 1},
    )
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 4))
    stopping = EarlyStopping(patience=2)
    result = feddst.run(config, model=model, data=noise, watcher=Silent(), callbacks=[stopping])
    assert not result.finished
    assert (stopping.best_round, stopping.stopped_round, len(result.rows)) == (1, 3, 3)


def test_a_comparison_refuses_what_would_end_it(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"EarlyStopping would end the comparison .* use it with feddst\.run"):
        feddst.compare(out=tmp_path / "a", callbacks=[EarlyStopping()])
    assert not (tmp_path / "a").exists()


def test_other_metrics_have_no_personal_figure() -> None:
    """A column that never has a value would never end a run."""
    run: Any = SimpleNamespace(rows=[], stopped_by="", metrics=[RMSE, Metric("mae", higher_is_better=False)])
    EarlyStopping(metric="rmse_personal").started([run])
    with pytest.raises(OptionError, match=r"metric must be one of .*mae_global, loss, .* got 'mae_personal'"):
        EarlyStopping(metric="mae_personal").started([run])
