"""What clients are sent: the same as a rule, and here masks and weights of their own, by the method `Parts`.

Of 36·12 and 12·4 weights clients with an even number are sent 324 and 36, the others 216 and 24.
"""

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import feddst
from feddst.clients.exchange import layout_of
from feddst.core import Tensors, Update
from feddst.data import Dataset, federate
from feddst.engines import EngineConfig, make_engine
from feddst.errors import TrainingError
from feddst.methods import METHODS
from feddst.models import make_module
from feddst.runtime import RunConfig
from feddst.runtime.broadcasts import Broadcasts
from feddst.runtime.loop import Silent, play
from feddst.runtime.metrics import GIB
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.wire import ClientResult, ClientTask, MaskHistory, WireConfig, decode_broadcast, encode_update
from feddst.wire.header import SIZE

from .conftest import Parts, quarter_of

Configure = Callable[..., RunConfig]
VALUES = (4 * (324 + 36 + 16), 4 * (216 + 24 + 16))
"""The bytes of the values that a client of each kind is sent, and sends, with 16 biases."""


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 4))


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, Parts.name, Parts)


@pytest.fixture
def make_run(small_config: Configure, small_data: Dataset) -> Callable[..., Run]:
    """A run of the method over clients with twelve images each."""

    def make(method: str = Parts.name, **changes: Any) -> Run:
        config = small_config(method=method, **{"local__batch": 6, **changes})
        federation = federate(config.data, config.seed, small_data)
        return Run(config, federation, make_module(network, config.seed))

    return make


@pytest.fixture
def broadcasts(make_run: Callable[..., Run]) -> Callable[..., Broadcasts]:
    """What a run's first round is begun with."""

    def make(method: str = Parts.name, history: MaskHistory | None = None, **wire: Any) -> Broadcasts:
        run = make_run(method)
        return Broadcasts(run.method, run.state, WireConfig(**wire), history or MaskHistory(8))

    return make


class StopAfter(Silent):
    """Ends a run early, as Ctrl-C does."""

    def __init__(self, rounds: int) -> None:
        self._left = rounds

    def stop(self) -> bool:
        self._left -= 1
        return self._left <= 0


def same(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


# What is sent.


def test_those_who_are_sent_the_same_tensors_share_an_encoder_and_its_bytes(
    broadcasts: Callable[..., Broadcasts],
) -> None:
    sent = broadcasts()
    assert sent.encoder(0) is sent.encoder(2)
    assert sent.encoder(1) is sent.encoder(3) is not sent.encoder(0)
    assert sent.reference(0) is sent.reference(4)
    assert sent.reference(0).broadcast is sent.encoder(0).reference.broadcast
    assert len(sent.facts) == 2
    one, other, two = (sent.encoder(client).message_for(client) for client in range(3))
    assert one.payload is two.payload
    assert one.payload != other.payload


def test_a_method_that_sends_all_the_same_has_one_encoder(broadcasts: Callable[..., Broadcasts]) -> None:
    for method in ("fedavgm", "randommask"):
        sent = broadcasts(method)
        assert len({id(sent.encoder(client)) for client in range(8)}) == 1
        assert len(sent.facts) == 1


def test_each_message_decodes_to_its_clients_masks_and_weights(broadcasts: Callable[..., Broadcasts]) -> None:
    sent = broadcasts()
    layout = layout_of(network())
    for client in range(4):
        found = decode_broadcast(sent.encoder(client).message_for(client).payload, layout)
        assert found.round == 1
        assert found.masks.keys() == {"1.weight", "3.weight"}
        for name, value in sent.state.params.items():
            if name not in found.masks:
                assert torch.equal(found.params[name], value)
                continue
            quarter = quarter_of(value)
            held = quarter < 3 if client % 2 == 0 else quarter >= 2
            assert torch.equal(found.masks[name], held)
            assert torch.equal(found.params[name], torch.where(held, value, 0.0))


@pytest.mark.parametrize("download", ["float32", "bfloat16"])
def test_the_server_takes_clients_to_have_what_they_decode(
    download: str, broadcasts: Callable[..., Broadcasts]
) -> None:
    """Weights that a mask leaves out are not sent, though the method has them: they are 0 for both ends."""
    sent = broadcasts(download=download)
    for client in (0, 1):
        message = sent.encoder(client).message_for(client)
        mine, theirs = message.reference.broadcast, decode_broadcast(message.payload, layout_of(network()))
        assert same(mine.params, theirs.params)
        assert same(mine.masks, theirs.masks)
        assert message.reference.norm == pytest.approx(
            sum(float((value.double() ** 2).sum()) for value in theirs.params.values()) ** 0.5
        )


def test_masks_that_clients_hold_are_told_by_their_names(broadcasts: Callable[..., Broadcasts]) -> None:
    history = MaskHistory(8)
    first, again = broadcasts(history=history), broadcasts(history=history)
    for client in (0, 1):
        one, two = (sent.encoder(client).message_for(client) for sent in (first, again))
        assert len(one.payload) > len(two.payload) == SIZE + VALUES[client]
        assert (one.held, two.held) == (b"", first.reference(client).bitmap)
        found = decode_broadcast(two.payload, layout_of(network()), two.held)
        assert same(found.masks, again.reference(client).broadcast.masks)


def test_what_follows_from_masks_is_worked_out_once_for_as_long_as_they_stay(make_run: Callable[..., Run]) -> None:
    run = make_run()
    first = Broadcasts(run.method, run.state, WireConfig(), MaskHistory(8))
    before = [first.reference(client).facts for client in (0, 1)]
    same_masks = run.state.next(params={name: 2 * value for name, value in run.state.params.items()})
    moved = same_masks.next(extra={name: mask.clone() for name, mask in run.state.extra.items()})
    for state, kept in ((same_masks, True), (moved, False)):
        later = Broadcasts(run.method, state, WireConfig(), MaskHistory(8), first.facts)
        assert later.reference(0).broadcast.params is not first.reference(0).broadcast.params
        assert [later.reference(client).facts is before[client] for client in (0, 1)] == [kept, kept]


def test_weights_that_cannot_be_sent_are_named(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.state = replace(run.state, params={**run.state.params, "3.bias": torch.full((4,), 1e30)})
    sent = Broadcasts(run.method, run.state, WireConfig(), MaskHistory(8))
    with pytest.raises(TrainingError, match=r"^the model cannot be sent in round 1: .*3\.bias"):
        sent.encoder(0)


# What comes back.


def constant(task: ClientTask, value: float, weight: int) -> ClientResult:
    """An answer in which all weights are the same."""
    sizes = {
        name: len(packed) if name in task.sent.active else packed.shape for name, packed in task.sent.values.items()
    }
    update = Update(
        task.client,
        task.round,
        weight,
        {
            name: torch.full(torch.Size([size] if isinstance(size, int) else size), value)
            for name, size in sizes.items()
        },
    )
    return ClientResult(encode_update(update, task), loss=0.5)


def test_updates_under_different_masks_add_up(make_run: Callable[..., Run]) -> None:
    """Two clients of each kind: the one's send 2 and 4 with weights 6 and 2, the other's 8 and 0 with weights 1 and 7.

    What the first kind holds alone has the mean (6·2 + 2·4)/8 = 2.5, the second's (1·8 + 7·0)/8 = 1; what both hold,
    and biases, (20 + 8)/16 = 1.75. Nobody need hold anything else.
    """
    answers = {0: [(2.0, 6), (4.0, 2)], 1: [(8.0, 1), (0.0, 7)]}
    for backwards in (False, True):
        run = make_run(data__clients=4, cohort__size=4, wire__max_change=0)
        tasks = list(enumerate(run.open_round()))
        left = {kind: list(values) for kind, values in answers.items()}
        results = [(place, constant(task, *left[task.client % 2].pop(0))) for place, task in tasks]
        assert all(run.round.take(place, result) for place, result in (results[::-1] if backwards else results))
        assert set(run.round.total.votes()["1.weight"].flatten().tolist()) == {8, 16}
        run.close_round()
        row = run.record([])
        for name, value in run.state.params.items():
            by_quarter = torch.tensor([2.5, 2.5, 1.75, 1.0])
            expected = by_quarter[quarter_of(value)] if name.endswith("weight") else torch.full_like(value, 1.75)
            assert torch.equal(value, expected)
        assert row.clients == 4
        assert row.upload_bytes == 2 * sum(SIZE + size for size in VALUES)


@pytest.mark.parametrize("kind", ["native", "stacked"])
@pytest.mark.parametrize(
    "wire",
    [{}, {"wire__values": "q4", "wire__feedback": True, "wire__download": "bfloat16"}, {"wire__packing": "deflate"}],
    ids=["plain", "rounded", "deflate"],
)
def test_every_engine_trains_clients_with_different_masks(
    kind: str, wire: dict[str, Any], make_run: Callable[..., Run], small_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the reference does, to rounding; what the stacked engine counts and adds up is audited in every round."""
    monkeypatch.setattr(sys.modules["feddst.runtime.run"], "AUDIT_EVERY", 1)
    runs: list[Run] = []
    for engine in ("reference", kind):
        run = make_run(rounds=4, local__lr=0.05, **wire)
        with closing(make_engine(EngineConfig(engine, workers=1), network(), small_data)) as made:
            play([run], made, Silent())
        runs.append(run)
    expected, found = runs
    assert [row.clients for row in found.rows] == [4] * 4
    assert expected.rows[-1].accuracy is not None
    assert expected.rows[-1].accuracy > 0.5  # four classes: chance is 0.25
    for name, value in expected.state.params.items():
        assert float((found.state.params[name] - value).abs().max()) < (1e-4 if not wire else 0.1), name
    for one, right in zip(found.rows, expected.rows, strict=True):
        assert one.download_mask_bytes == right.download_mask_bytes
        assert (one.download_bits, one.upload_bits) == (right.download_bits, right.upload_bits)
        assert one.flops_sparse == right.flops_sparse
        if "wire__packing" not in wire:  # else bytes follow from the last bits of values
            assert (one.upload_bytes, one.download_bytes) == (right.upload_bytes, right.download_bytes)


def test_a_resumed_run_ends_with_the_same_bits(small_config: Configure, small_data: Dataset, tmp_path: Path) -> None:
    """Which of two masks each client holds is in the checkpoint, and so are the masks.

    Four clients of each kind hold 4·324 + 4·216 = 2160 weights of the first layer. Of one's 324 each of the other kind
    lacks 216, of one's 216 108: 16·324 = 5184 of 7·2160 in all, or 12/35.
    """
    config = small_config(method=Parts.name, cohort__size=8, wire__values="q8", wire__feedback=True)
    whole = feddst.run(config, model=network, data=small_data, out=tmp_path / "whole", watcher=Silent())
    part = feddst.run(config, model=network, data=small_data, out=tmp_path / "part", watcher=StopAfter(3))
    assert (whole.finished, part.finished, len(part.rows)) == (True, False, 3)
    feddst.run(config, model=network, data=small_data, out=tmp_path / "part", watcher=Silent(), resume=True)
    one, two = (RunDirectory(tmp_path / name) for name in ("whole", "part"))
    assert one.checkpoint.read_bytes() == two.checkpoint.read_bytes()
    assert one.details_file.read_bytes() == two.details_file.read_bytes()
    assert one.details()[0].layers[0].apart == pytest.approx(12 / 35)


def test_a_cap_counts_what_each_client_can_send(make_run: Callable[..., Run], small_data: Dataset) -> None:
    """All eight clients take part: four of each kind, which send 48 bytes of header and their values."""
    each = 4 * sum(SIZE + size for size in VALUES)
    for rounds, bytes in ((2, 2 * each), (1, 2 * each - 1)):
        run = make_run(rounds=0, cohort__size=8, cap_gib=8 * bytes / GIB)
        with closing(make_engine(EngineConfig("reference", workers=1), network(), small_data)) as engine:
            play([run], engine, Silent())
        assert (len(run.rows), run.stopped_by, run.rows[-1].upload_bytes) == (rounds, "cap", rounds * each)
