"""The same config and seed give the same run, bit for bit, with clients in an engine of ours and on a Flower grid."""

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import flwr.serverapp.strategy
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from torch import Tensor, nn

import feddst
from feddst.data import Federation
from feddst.errors import OptionError
from feddst.flower import FlowerConfig, InProcessGrid, Strategy
from feddst.methods import METHODS
from feddst.models import make_module
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.old_names import METHODS as CROSSED
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.wire import ClientTask

from ..runtime.conftest import Parts

Configure = Callable[..., RunConfig]
Play = Callable[..., Any]
Alike = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], bool]


def normalised() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))


def comparable(rows: list[Row]) -> list[Row]:
    """Rows without what a clock says, and without the clients' own models, which a server on Flower never sees."""
    return [replace(row, seconds=0.0, score_personal=None) for row in rows]


@pytest.mark.parametrize("kind", ["reference", "native"])
@pytest.mark.parametrize("method", [*METHODS, *CROSSED])
def test_every_method_is_the_same_on_a_grid(
    method: str, kind: str, configure: Configure, federation: Federation, play: Play, alike: Alike, network: Any
) -> None:
    config = configure(method=method, cohort__size=4, engine__kind=kind)
    expected = feddst.run(config, model=network, data=federation, watcher=Silent())
    on_grid = play(config)
    assert alike(on_grid.weights[-1], expected.model.state_dict())
    assert comparable(on_grid.rows) == comparable(expected.rows)
    assert not alike(on_grid.weights[-1], make_module(network, 0).state_dict())


@pytest.mark.parametrize("kind", ["reference", "native"])
def test_clients_may_be_sent_different_masks(
    kind: str,
    configure: Configure,
    federation: Federation,
    play: Play,
    alike: Alike,
    network: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METHODS, Parts.name, Parts)
    config = configure(method=Parts.name, cohort__size=4, engine__kind=kind, wire__values="q8", wire__feedback=True)
    expected = feddst.run(config, model=network, data=federation, watcher=Silent())
    on_grid = play(config)
    assert alike(on_grid.weights[-1], expected.model.state_dict())
    assert comparable(on_grid.rows) == comparable(expected.rows)


@pytest.mark.parametrize("kind", ["reference", "native"])
@pytest.mark.parametrize(
    "changes",
    [
        {"wire__values": "q4"},
        {"wire__download": "bfloat16"},
        {"wire__download": "q8", "wire__values": "float16", "wire__packing": "deflate"},
        {"wire__packing": "deflate", "wire__values": "q2"},
        {"wire__mask": "bitmap", "wire__remember": 0, "local__epochs": 2},
        {"wire__values": "top8", "wire__feedback": True},
        {"wire__values": "q2", "wire__feedback": True, "method": "lotteryfl", "cohort__size": 4},
        {"proximal__mu": 1.0, "cohort__stragglers": 0.5, "local__epochs": 3},
        {"cohort__sampling": "with-replacement", "cohort__size": 5},
        {"method": "lg-fedavg", "cohort__sampling": "with-replacement"},
        {"seed": 12345, "local__weigh_by": "batches", "growth__images": "last-batch"},
        {"aggregator__kind": "trimmed-mean", "aggregator__trim": 0.2},
        {"method": "nestedmask", "wire__values": "q4", "wire__feedback": True, "wire__download": "bfloat16"},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_every_way_of_travelling_is_the_same_on_a_grid(
    changes: dict[str, Any],
    kind: str,
    configure: Configure,
    federation: Federation,
    play: Play,
    alike: Alike,
    network: Any,
) -> None:
    config = configure(**changes, engine__kind=kind)
    expected = feddst.run(config, model=network, data=federation, watcher=Silent())
    on_grid = play(config)
    assert alike(on_grid.weights[-1], expected.model.state_dict())
    assert comparable(on_grid.rows) == comparable(expected.rows)


def test_stragglers_that_are_left_out_are_not_even_asked(
    configure: Configure, federation: Federation, play: Play, alike: Alike, network: Any
) -> None:
    """A simulation counts what would be sent to them; here nothing is, and nobody takes them to have what was not."""
    config = configure(cohort__stragglers=0.5, local__epochs=2)
    expected = feddst.run(config, model=network, data=federation, watcher=Silent())
    on_grid = play(config)
    assert alike(on_grid.weights[-1], expected.model.state_dict())
    assert [(row.clients, row.refused, row.missing) for row in on_grid.rows] == [(3, 0, 0)] * 3
    assert on_grid.rows[-1].upload_bytes == expected.rows[-1].upload_bytes
    assert on_grid.rows[-1].download_bytes < expected.rows[-1].download_bytes


def test_a_client_drawn_twice_is_asked_twice(
    configure: Configure, federation: Federation, play: Play, network: Any
) -> None:
    """More clients a round than there are, which only drawing with replacement can give."""
    config = configure(cohort__sampling="with-replacement", cohort__size=9)
    expected = feddst.run(config, model=network, data=federation, watcher=Silent())
    assert [row.clients for row in expected.rows] == [9, 9, 9]
    assert comparable(play(config).rows) == comparable(expected.rows)


@pytest.mark.parametrize("method", ["feddst", "lotteryfl", "fedavgm"])
def test_buffers_travel_too(
    method: str, configure: Configure, federation: Federation, play: Play, alike: Alike
) -> None:
    config = configure(method=method, wire__download="bfloat16")
    expected = feddst.run(config, model=normalised, data=federation, watcher=Silent())
    on_grid = play(config, model=normalised)
    assert "2.running_var" in on_grid.weights[-1]
    assert alike(on_grid.weights[-1], expected.model.state_dict())
    assert comparable(on_grid.rows) == comparable(expected.rows)


@pytest.mark.parametrize("method", ["feddst", "fedavgm", "snip", "prunefl"])
def test_flowers_own_loop_gives_the_same_weights(
    method: str, configure: Configure, federation: Federation, alike: Alike, network: Any, make_grid: Any
) -> None:
    config = configure(method=method, cohort__size=4)
    expected = feddst.run(config, model=network, data=federation, watcher=Silent())
    strategy = Strategy(config, model=network, data=federation)
    begin = ArrayRecord(make_module(network, config.seed).state_dict())
    # Methods that begin with a round 0 play one more than they count, and one too many asks nobody for anything.
    result = flwr.serverapp.strategy.Strategy.start(strategy, make_grid(), begin, num_rounds=len(expected.rows) + 1)
    assert alike(result.arrays.to_torch_state_dict(), expected.model.state_dict())
    assert len(result.train_metrics_clientapp) == len(expected.rows)
    for row, metrics in zip(expected.rows, result.train_metrics_clientapp.values(), strict=True):
        assert metrics["upload_bytes"] == row.upload_bytes
        assert metrics["download_bytes"] == row.download_bytes


def test_a_strategy_begins_where_it_is_told_to(
    configure: Configure, federation: Federation, alike: Alike, network: Any, make_grid: Any
) -> None:
    config = configure(method="fedavgm")
    begin = make_module(network, 77)
    expected = feddst.run(config, model=begin, data=federation, watcher=Silent())
    started = Strategy(config, model=network, data=federation, watcher=Silent(), flower=FlowerConfig(wait=5)).start(
        make_grid(), ArrayRecord(begin.state_dict())
    )
    assert alike(started.arrays.to_torch_state_dict(), expected.model.state_dict())


@pytest.mark.parametrize("method", ["lotteryfl", "lg-fedavg"])
def test_clients_that_draw_the_beginning_themselves_cannot_be_given_another(
    method: str, configure: Configure, federation: Federation, network: Any, make_grid: Any
) -> None:
    strategy = Strategy(configure(method=method), model=network, data=federation, watcher=Silent())
    begin = ArrayRecord(make_module(network, 1).state_dict())
    for start in (strategy.start, partial(flwr.serverapp.strategy.Strategy.start, strategy)):
        with pytest.raises(OptionError, match=rf"cannot be given with {method}.* use Strategy\.start without them"):
            start(make_grid(), begin)


def test_flowers_own_loop_has_a_round_opened_as_others_are_and_keeps_no_message_of_it(
    configure: Configure, federation: Federation, network: Any, make_grid: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict, sent = list[bool](), list[weakref.ref[Message]]()
    opening = Run.open_round

    def noted(run: Run) -> Sequence[ClientTask]:
        strict.append(torch.backends.cudnn.deterministic)
        return opening(run)

    monkeypatch.setattr(Run, "open_round", noted)
    strategy, grid = Strategy(configure(), model=network, data=federation), make_grid()
    messages = list(strategy.configure_train(1, ArrayRecord(network().state_dict()), ConfigRecord(), grid))
    replies = list(grid.send_and_receive(messages))
    sent.extend(map(weakref.ref, messages))
    del messages
    strategy.aggregate_train(1, replies)
    gc.collect()
    assert strict == [True]
    assert [message() for message in sent] == [None] * 6


def test_rounds_can_be_told_at_the_start(
    configure: Configure, federation: Federation, network: Any, make_grid: Callable[..., InProcessGrid]
) -> None:
    strategy = Strategy(configure(rounds=9), model=network, data=federation, watcher=Silent())
    result = strategy.start(make_grid(), num_rounds=2)
    assert list(result.train_metrics_clientapp) == [1, 2]


def test_a_client_leaves_pytorchs_threads_as_they_were(configure: Configure, play: Play) -> None:
    torch.set_num_threads(2)  # it trains with one; `one_thread` undoes this
    play(configure(rounds=1))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


@pytest.mark.parametrize("method", ["feddst", "lotteryfl"])
def test_the_same_is_told_of_a_run_on_a_grid(
    method: str, configure: Configure, federation: Federation, play: Play, network: Any, tmp_path: Path
) -> None:
    config = configure(method=method)
    feddst.run(config, model=network, data=federation, watcher=Silent(), out=tmp_path / "here")
    play(config, out=tmp_path / "grid")
    told = [RunDirectory(tmp_path / name).details() for name in ("here", "grid")]
    assert told[0] == told[1]
    assert any(layer.apart for detail in told[0] for layer in detail.layers)
