"""Broadcasts: whole at first, then only what changed, and known to the server as clients decode them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from feddst.core import Broadcast, ClientPlan, LocalTraining, Masks, Tensors, Update, masked
from feddst.errors import AuditError, WireError
from feddst.wire import (
    BroadcastDecoder,
    BroadcastEncoder,
    ClientTask,
    MaskHistory,
    Message,
    Reference,
    WireConfig,
    decode_broadcast,
    decode_reference,
    encode_update,
    general_codecs,
    mask_bytes,
)
from feddst.wire.header import Header, Kind
from feddst.wire.history import mask_name
from feddst.wire.masks import MaskCode
from feddst.wire.payload import join, split

SHAPES: list[tuple[int, ...]] = [(0,), (), (1,), (3, 7), (2, 3, 3), (70,), (9, 30)]


def broadcast_of(
    seed: int, shapes: Sequence[tuple[int, ...]], shares: Sequence[float | None], round: int = 1
) -> Broadcast:
    """Random parameters of these shapes; of a layer with a share about so many weights are kept."""
    draws = np.random.default_rng([seed, round])
    params = {f"layer{i}": _normal(draws, shape) for i, shape in enumerate(shapes)}
    masks = {
        f"layer{i}": torch.from_numpy(np.asarray(draws.random(shapes[i]) < share))
        for i, share in enumerate(shares)
        if share is not None
    }
    buffers = {"mean": _normal(draws, (3,)), "seen": torch.tensor(round), "on": torch.tensor([True, False])}
    return Broadcast(round, _without(params, masks), buffers, masks)


def _without(params: Tensors, masks: Masks) -> Tensors:
    """The parameters with zeros (not negative ones) where nothing is kept."""
    return {name: value + 0.0 for name, value in masked(params, masks).items()}


def _normal(draws: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.asarray(draws.standard_normal(shape), dtype=np.float32))


def assert_same(found: Broadcast, expected: Broadcast) -> None:
    """Equal to the last bit."""
    assert found.round == expected.round
    for a, b in [(found.params, expected.params), (found.buffers, expected.buffers), (found.masks, expected.masks)]:
        _assert_same_tensors(a, b)


def _assert_same_tensors(found: Tensors, expected: Tensors) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype), name
        assert found[name].numpy().tobytes() == value.numpy().tobytes(), name


layers = st.lists(
    st.tuples(st.sampled_from(SHAPES), st.sampled_from([None, 0.0, 0.1, 0.5, 0.9, 1.0])), min_size=1, max_size=4
)


@pytest.mark.parametrize("packing", ["plain", "deflate"])
@pytest.mark.parametrize("codec", general_codecs())
@settings(max_examples=25)
@given(layers=layers, seed=st.integers(0, 2**32), style=st.sampled_from(["difference", "positions", "bitmap"]))
def test_the_server_knows_what_clients_decode_to_the_last_bit(
    codec: str, packing: Any, layers: list[tuple[tuple[int, ...], float | None]], seed: int, style: Any
) -> None:
    sent = broadcast_of(seed, [shape for shape, _ in layers], [share for _, share in layers])
    wire = WireConfig(download=codec, mask=style, packing=packing)
    encoder = BroadcastEncoder(sent, wire, MaskHistory(8), seed=1)
    message = encoder.message_for(0)
    found = decode_broadcast(message.payload, Reference(sent).layout, message.held)
    assert_same(found, encoder.reference.broadcast)
    assert_same(replace(found, params={}), replace(sent, params={}))
    if codec == "float32":
        assert_same(found, sent)


@settings(max_examples=25)
@given(layers=layers, seed=st.integers(0, 2**32))
def test_a_reference_is_the_broadcast_and_what_follows_from_it(
    layers: list[tuple[tuple[int, ...], float | None]], seed: int
) -> None:
    sent = broadcast_of(seed, [shape for shape, _ in layers], [share for _, share in layers])
    encoder = BroadcastEncoder(sent, WireConfig(), MaskHistory(8), seed=1)
    message = encoder.message_for(0)
    for found in (decode_reference(message.payload, Reference(sent).layout, message.held), encoder.reference):
        anew = Reference(found.broadcast)
        assert_same(found.broadcast, sent)
        _assert_same_tensors(found.positions, anew.positions)
        _assert_same_tensors(found.values, anew.values)
        assert (found.active, found.mask_name) == (anew.active, anew.mask_name)


def test_a_decoder_shares_what_has_the_same_content_and_nothing_else() -> None:
    first, history = broadcast_of(3, [(9, 30), (70,)], [0.5, None]), MaskHistory(8)
    BroadcastEncoder(first, WireConfig(), history, seed=1).message_for(0)
    drawn = broadcast_of(3, [(9, 30), (70,)], [0.5, None], round=2)
    second = replace(drawn, params=_without(drawn.params, first.masks), masks=first.masks)
    encoder = BroadcastEncoder(second, WireConfig(), history, seed=1)
    knowing, new = encoder.message_for(0), encoder.message_for(1)
    assert knowing.payload != new.payload  # only one of them has a mask in it
    decoder = BroadcastDecoder(Reference(second).layout)
    found = decoder.read(knowing.payload, knowing.held)
    assert_same(found.broadcast, second)
    assert decoder.read(new.payload, new.held) is found
    moved = {**second.params, "layer1": second.params["layer1"] + 1}
    for other in (
        replace(second, params=moved),
        replace(second, round=3),
        replace(second, buffers={**second.buffers, "seen": torch.tensor(7)}),
        replace(
            second, params={**second.params, "layer0": torch.zeros(9, 30)}, masks={"layer0": ~second.masks["layer0"]}
        ),
    ):
        message = BroadcastEncoder(other, WireConfig(), MaskHistory(8), seed=1).message_for(0)
        assert_same(decoder.read(message.payload, message.held).broadcast, other)


@pytest.mark.parametrize(("codec", "largest"), [("q8", 1 / 127), ("bfloat16", 2.0**-8), ("float16", 2.0**-11)])
def test_a_rounded_broadcast_is_near_the_exact_one(codec: str, largest: float) -> None:
    sent = broadcast_of(3, [(9, 30), (70,)], [0.5, None])
    found = BroadcastEncoder(sent, WireConfig(download=codec), MaskHistory(8), seed=1).reference.broadcast
    for name, value in sent.params.items():
        error = float((found.params[name] - value).abs().max() / value.abs().max())
        assert 0 < error <= 1.01 * largest


def test_rounding_is_drawn_from_the_seed_and_the_round() -> None:
    def drawn(seed: int, round: int) -> Tensor:
        sent = replace(broadcast_of(3, [(70,)], [None]), round=round)
        encoder = BroadcastEncoder(sent, WireConfig(download="q2"), MaskHistory(8), seed)
        return encoder.reference.broadcast.params["layer0"]

    assert torch.equal(drawn(1, 1), drawn(1, 1))
    assert not torch.equal(drawn(1, 1), drawn(2, 1))
    assert not torch.equal(drawn(1, 1), drawn(1, 2))


# One model over several rounds.

SHARE = [0.2, None]
FIRST = broadcast_of(0, [(40, 50), (50,)], SHARE)
LAYOUT = Reference(FIRST).layout


def moved(sent: Broadcast, by: int, round: int) -> Broadcast:
    """The same with the first `by` kept weights of its masked layer left out."""
    mask = sent.masks["layer0"].clone().reshape(-1)
    mask[mask.nonzero().reshape(-1)[:by]] = False
    masks = {"layer0": mask.reshape(40, 50)}
    return Broadcast(round, _without(sent.params, masks), sent.buffers, masks)


def header_of(payload: bytes) -> Header:
    return split(payload, LAYOUT, Kind.BROADCAST).header


def test_a_client_gets_the_mask_whole_once_and_then_only_what_changed() -> None:
    history, wire = MaskHistory(8), WireConfig()
    second, third = replace(FIRST, round=2), moved(FIRST, 5, round=3)
    codes, references, held = [], [], b""
    for sent in (FIRST, second, third):
        message = BroadcastEncoder(sent, wire, history, seed=1).message_for(4)
        assert message.held == held
        assert_same(decode_broadcast(message.payload, LAYOUT, held), sent)
        codes.append(header_of(message.payload).mask)
        references.append(header_of(message.payload).reference)
        held = Reference(sent).bitmap
    assert codes == [MaskCode.POSITIONS, MaskCode.SAME, MaskCode.DIFFERENCE]
    assert references == [0, Reference(FIRST).mask_name, Reference(FIRST).mask_name]


def test_clients_with_the_same_mask_get_the_same_bytes() -> None:
    history = MaskHistory(8)
    encoder = BroadcastEncoder(FIRST, WireConfig(), history, seed=1)
    assert encoder.message_for(0).payload is encoder.message_for(1).payload
    # Asked again in the same round, a client is taken to have the mask already.
    assert header_of(encoder.message_for(0).payload).mask is MaskCode.SAME


def test_a_client_whose_mask_was_forgotten_gets_it_whole() -> None:
    history = MaskHistory(1)
    BroadcastEncoder(FIRST, WireConfig(), history, seed=1).message_for(0)
    BroadcastEncoder(moved(FIRST, 5, 2), WireConfig(), history, seed=1).message_for(1)
    message = BroadcastEncoder(moved(FIRST, 9, 3), WireConfig(), history, seed=1).message_for(0)
    assert (header_of(message.payload).mask, message.held) == (MaskCode.POSITIONS, b"")
    assert_same(decode_broadcast(message.payload, LAYOUT, Reference(FIRST).bitmap), moved(FIRST, 9, 3))


def test_a_dense_model_has_no_mask() -> None:
    dense = Broadcast(1, FIRST.params, FIRST.buffers)
    history = MaskHistory(8)
    for _ in range(2):
        message = BroadcastEncoder(dense, WireConfig(), history, seed=1).message_for(0)
        assert (header_of(message.payload).mask, message.held) == (MaskCode.ABSENT, b"")
        assert_same(decode_broadcast(message.payload, LAYOUT), dense)


def test_a_model_that_became_dense_again_is_understood() -> None:
    history = MaskHistory(8)
    BroadcastEncoder(FIRST, WireConfig(), history, seed=1).message_for(0)
    dense = Broadcast(2, FIRST.params, FIRST.buffers)
    message = BroadcastEncoder(dense, WireConfig(), history, seed=1).message_for(0)
    assert_same(decode_broadcast(message.payload, LAYOUT, message.held), dense)


rounds = st.lists(st.tuples(st.sampled_from([0, 0, 1, 30]), st.sets(st.integers(0, 3))), min_size=1, max_size=8)


@settings(max_examples=50)
@given(rounds, st.integers(0, 3), st.sampled_from(["difference", "positions", "bitmap"]))
def test_whoever_takes_part_when_all_decode_the_rounds_model(
    rounds: list[tuple[int, set[int]]], remember: int, style: Any
) -> None:
    history, sent, held = MaskHistory(remember), FIRST, dict.fromkeys(range(4), b"")
    for r, (by, clients) in enumerate(rounds, 1):
        sent = moved(sent, by, r)
        encoder = BroadcastEncoder(sent, WireConfig(mask=style), history, seed=1)
        for client in clients:
            found = decode_broadcast(encoder.message_for(client).payload, LAYOUT, held[client])
            assert_same(found, sent)
            held[client] = Reference(found).bitmap


# How long messages are.


@pytest.mark.parametrize("codec", general_codecs())
@settings(max_examples=15)
@given(layers=layers, seed=st.integers(0, 2**32), style=st.sampled_from(["difference", "positions", "bitmap"]))
def test_a_message_has_as_many_bytes_as_are_counted_before_it_is_written(
    codec: str, layers: list[tuple[tuple[int, ...], float | None]], seed: int, style: Any
) -> None:
    sent = broadcast_of(seed, [shape for shape, _ in layers], [share for _, share in layers])
    history, wire = MaskHistory(8), WireConfig(download=codec, mask=style)
    for _ in range(2):  # to a client that holds no mask, and to one that holds this one
        message = BroadcastEncoder(sent, wire, history, seed=1).message_for(0)
        counted = message.sizes
        assert not message.written
        assert counted == (len(message.payload), mask_bytes(message.payload)) == message.sizes
        assert message.written


def test_an_audited_message_is_written_and_must_be_as_long_as_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def message(packing: Any) -> Message:
        wire = WireConfig(packing=packing)
        return BroadcastEncoder(FIRST, wire, MaskHistory(8), seed=1, audited=True).message_for(0)

    plain, deflated = message("plain"), message("deflate")
    assert plain.sizes[0] == len(plain.payload) > deflated.sizes[0] == len(deflated.payload)
    assert plain.sizes[1] == deflated.sizes[1] == mask_bytes(plain.payload)
    size = plain.sizes[0]
    monkeypatch.setattr("feddst.wire.broadcast.payload_size", lambda *lengths: size + 1)
    with pytest.raises(AuditError, match=f"a broadcast was counted as {size + 1} bytes and has {size}"):
        _ = message("plain").sizes


# What a client refuses.


def payload_after(first: Broadcast, second: Broadcast) -> bytes:
    history = MaskHistory(8)
    BroadcastEncoder(first, WireConfig(), history, seed=1).message_for(0)
    return BroadcastEncoder(second, WireConfig(), history, seed=1).message_for(0).payload


@pytest.mark.parametrize("second", [replace(FIRST, round=2), moved(FIRST, 5, 2)])
@pytest.mark.parametrize("held", [b"", Reference(moved(FIRST, 1, 1)).bitmap])
def test_a_mask_the_client_does_not_hold_is_missed(second: Broadcast, held: bytes) -> None:
    payload = payload_after(FIRST, second)
    assert_same(decode_broadcast(payload, LAYOUT, Reference(FIRST).bitmap), second)
    with pytest.raises(
        WireError, match=f"refers to mask {Reference(FIRST).mask_name:08x}, here is {mask_name(held):08x}"
    ):
        decode_broadcast(payload, LAYOUT, held)


def rewritten(payload: bytes, **header: Any) -> bytes:
    old = split(payload, LAYOUT, Kind.BROADCAST)
    return join(replace(old.header, **header), bytes(old.mask), bytes(old.buffers), bytes(old.values))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"weight": 1}, "a broadcast has no weight of its own"),
        ({"reference": 1}, "refers to mask 00000001, here is 00000000"),
        ({"kind": Kind.UPDATE}, "of kind UPDATE, not BROADCAST"),
        ({"fingerprint": 1}, "for another model"),
        ({"mask": MaskCode.ABSENT}, "has a mask section"),
        ({"values": 1}, "the value section has .* bytes, .* are expected"),
    ],
)
def test_a_broadcast_that_cannot_be_is_refused(header: dict[str, Any], reason: str) -> None:
    payload = BroadcastEncoder(FIRST, WireConfig(), MaskHistory(8), seed=1).message_for(0).payload
    assert rewritten(payload) == payload
    with pytest.raises(WireError, match=reason):
        decode_broadcast(rewritten(payload, **header), LAYOUT)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**36])
@pytest.mark.parametrize("codec", ["float32", "bfloat16", "q8"])
def test_a_model_that_is_not_finite_is_not_sent(codec: str, value: float) -> None:
    params = {**FIRST.params, "layer1": torch.full((50,), value)}
    with pytest.raises(WireError, match=r"layer1 holds .*: not a number|scale of a block is negative or not finite"):
        BroadcastEncoder(replace(FIRST, params=params), WireConfig(download=codec), MaskHistory(8), seed=1)


def test_an_update_is_no_broadcast() -> None:
    update = Update(0, 1, 1, FIRST.params, FIRST.buffers)
    reference = Reference(Broadcast(1, FIRST.params, FIRST.buffers))
    payload = encode_update(update, ClientTask(0, 0, ClientPlan(LocalTraining()), Message().read_as(reference)))
    with pytest.raises(WireError, match="of kind UPDATE, not BROADCAST"):
        decode_broadcast(payload, LAYOUT)


# A rounded broadcast must not round the server's own weights.


def test_an_update_of_an_exact_broadcast_is_taken_as_it_is() -> None:
    encoder = BroadcastEncoder(FIRST, WireConfig(), MaskHistory(8), seed=1)
    update = Update(0, 1, 1, encoder.reference.values)
    assert encoder.unrounded(update) is update


@pytest.mark.parametrize("codec", ["bfloat16", "q2"])
@pytest.mark.parametrize("moves", [False, True])
def test_a_client_that_changed_nothing_leaves_the_servers_weights_alone(codec: str, moves: bool) -> None:
    encoder = BroadcastEncoder(FIRST, WireConfig(download=codec), MaskHistory(8), seed=1)
    masks = moved(FIRST, 5, 1).masks if moves else FIRST.masks
    received = Reference(replace(encoder.reference.broadcast, masks=masks))
    exact = Reference(replace(FIRST, masks=masks))
    found = encoder.unrounded(Update(0, 1, 1, received.values, masks=masks if moves else None))
    for name, value in exact.values.items():
        assert not torch.equal(received.values[name], value)
        assert torch.allclose(found.params[name], value, rtol=1e-6, atol=1e-6)
