"""Which engine a run gets where the kernels cannot carry it out; none of this needs them."""

import logging
import re
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from torch import nn

import feddst
from feddst.core import ClientPlan, LocalTraining
from feddst.data import Dataset
from feddst.engines import EngineConfig, ReferenceEngine, make_engine, select
from feddst.engines.native import library
from feddst.engines.native.known import why_unknown
from feddst.engines.stacked.engine import StackedEngine
from feddst.options import updated
from feddst.runtime import RunConfig

SLOWER = "This is slower, and the result is of the same kind"
MISSING = "feddst was installed without its compiled kernels (why)"


def flat(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), *layers)


OTHERS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a layer that is unknown": (lambda: flat(nn.Tanh()), r"layer 2 \(Tanh\)"),
    "BatchNorm": (lambda: flat(nn.BatchNorm1d(4)), r"layer 2 \(BatchNorm1d\)"),
    "BatchNorm that keeps nothing": (lambda: flat(nn.BatchNorm1d(4, track_running_stats=False)), "BatchNorm1d"),
    "Softmax in the middle": (
        lambda: flat(nn.Softmax(dim=1), nn.Linear(4, 4)),
        r"layer 3 \(Linear\) follows a Softmax",
    ),
    "scores from several rows": (
        lambda: nn.Sequential(nn.Conv2d(1, 1, 7), nn.Flatten()),
        r"layer 0 \(Conv2d\) gives scores",
    ),
    "a very wide maximum": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 1, padding=64), nn.MaxPool2d(130), nn.Flatten()),
        r"layer 1 \(MaxPool2d\) .*127",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_modules_get_the_reference_engine_and_one_warning(
    name: str, dataset: Dataset, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select, "why_missing", lambda: "")
    make, reason = OTHERS[name]
    with closing(make_engine(EngineConfig(workers=1), make(), dataset)) as engine:
        assert isinstance(engine, ReferenceEngine)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert re.search(f"training with PyTorch: .*{reason}", record.getMessage())


def test_a_client_of_its_own_does_not_warn_again(
    dataset: Dataset, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select, "why_missing", lambda: "")
    caplog.set_level(logging.INFO)
    for level in (logging.INFO, logging.WARNING):
        module = nn.Sequential(nn.Flatten(), nn.Tanh())
        make_engine(EngineConfig(workers=1), module, dataset, said_at=level).close()
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]
    assert "they train an nn.Sequential of Conv2d, Linear, ReLU" in caplog.records[0].getMessage()


def test_without_kernels_there_is_the_reference_engine_and_the_reason(
    module: nn.Module, dataset: Dataset, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select, "why_missing", lambda: MISSING)
    with closing(make_engine(EngineConfig(workers=1), module, dataset)) as engine:
        assert isinstance(engine, ReferenceEngine)
    assert [record.getMessage() for record in caplog.records] == [f"training with PyTorch: {MISSING}. {SLOWER}"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": "rmsprop"}, "local.optimizer is rmsprop, and the kernels know sgd, adam and adamw"),
        ({"nesterov": True}, "local.nesterov is True, which the kernels do not know"),
        ({"clip": 0.5}, "local.clip is 0.5, which the kernels do not know"),
        ({"schedule_within": "linear"}, "local.schedule_within is linear, which the kernels do not know"),
    ],
)
def test_training_that_the_kernels_do_not_know_goes_to_the_reference_engine(
    options: dict[str, Any],
    said: str,
    module: nn.Module,
    dataset: Dataset,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if the plan of a method alone asks for it."""
    monkeypatch.setattr(select, "why_missing", lambda: "")
    local = LocalTraining(**options)
    with closing(make_engine(EngineConfig(workers=1), module, dataset, local)) as engine:
        assert isinstance(engine, ReferenceEngine)
    assert [record.getMessage() for record in caplog.records] == [f"training with PyTorch: {said}. {SLOWER}"]
    assert said.startswith(why_unknown(ClientPlan(local)))
    assert why_unknown(ClientPlan(local))


def test_without_kernels_a_run_goes_to_its_end_with_one_warning(
    module: nn.Module, dataset: Dataset, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feddst.engines.select.why_missing", lambda: MISSING)
    small = {"rounds": 2, "data.clients": 4, "data.classes_per_client": 2, "data.images_per_class": 5}
    small |= {"cohort.size": 2, "local.epochs": 1, "engine.workers": 1}
    result = feddst.run(updated(RunConfig(), small), model=module, data=dataset)
    assert result.finished
    assert result.summary.rounds == 2
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, f"training with PyTorch: {MISSING}. {SLOWER}")
    ]


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_an_engine_that_adds_up_itself_leaves_other_aggregators_to_the_reference_engine(
    level: int, module: nn.Module, dataset: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stacked = EngineConfig(kind="stacked", workers=1)
    with closing(make_engine(stacked, module, dataset, aggregator="trimmed-mean", said_at=level)) as engine:
        assert isinstance(engine, ReferenceEngine)
    line = "training one client after another: the stacked engine adds updates up itself, and aggregator.kind is "
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, f"{line}trimmed-mean")]


@pytest.mark.parametrize(("kind", "aggregator"), [("stacked", "mean"), ("reference", "trimmed-mean")])
def test_an_engine_that_can_stays_and_nothing_is_said(
    kind: str, aggregator: str, module: nn.Module, dataset: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    config = EngineConfig(kind=kind, workers=1)
    with closing(make_engine(config, module, dataset, aggregator=aggregator)) as engine:
        assert isinstance(engine, {"stacked": StackedEngine, "reference": ReferenceEngine}[kind])
    assert caplog.records == []


def test_a_run_that_trims_is_the_same_on_the_engine_that_stands_in(
    module: nn.Module, dataset: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    small: dict[str, Any] = {"rounds": 2, "data.clients": 4, "data.classes_per_client": 2, "data.images_per_class": 5}
    small |= {"cohort.size": 4, "local.epochs": 1, "engine.workers": 1}
    small |= {"aggregator.kind": "trimmed-mean", "aggregator.trim": 0.3}
    found = {
        kind: feddst.run(updated(RunConfig(), {**small, "engine.kind": kind}), model=module, data=dataset)
        for kind in ("reference", "stacked")
    }
    assert len([record for record in caplog.records if "adds updates up itself" in record.getMessage()]) == 1
    for name, value in found["reference"].model.state_dict().items():
        assert value.equal(found["stacked"].model.state_dict()[name])


def test_a_missing_module_is_reported_with_its_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = library.why_missing()
    library.why_missing.cache_clear()
    monkeypatch.setitem(sys.modules, "feddst._native", None)
    try:
        assert "without its compiled kernels (" in library.why_missing()
    finally:
        library.why_missing.cache_clear()
    monkeypatch.undo()
    assert library.why_missing() == usual
