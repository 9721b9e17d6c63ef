"""Error feedback: by hand, under moving masks, and nothing is lost for good."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from feddst.core import (
    Broadcast,
    ClientPlan,
    ClientState,
    Examples,
    LocalTraining,
    Masks,
    Tensors,
    Update,
    masked,
)
from feddst.errors import OptionError
from feddst.wire import ClientTask, Message, Reference, WireConfig, decode_update, encode_update
from feddst.wire.feedback import remainder_of

WORK = ClientPlan(LocalTraining())
BITS = torch.tensor([True, False, True, True, False, False])


def broadcast(values: Sequence[float], mask: Tensor | None = None, round: int = 1) -> Reference:
    """One layer `w` [2, 3], masked or not, and a bias `b` [1]."""
    params = {"w": torch.tensor(values, dtype=torch.float32).view(2, 3), "b": torch.zeros(1)}
    masks = {} if mask is None else {"w": mask.view(2, 3)}
    return Reference(Broadcast(round, masked(params, masks), {}, masks))


def update(reference: Reference, weights: Sequence[float], bias: float = 0.0, masks: Masks | None = None) -> Update:
    """A client's answer, with these weights of those it holds."""
    held = reference.broadcast.masks if masks is None else masks
    value = torch.tensor(weights)
    params = {"w": value if held else value.view(2, 3), "b": torch.tensor([bias])}
    return Update(0, reference.broadcast.round, 1, params, masks=masks)


def exchanged(
    sent: Update, reference: Reference, state: ClientState, values: str, draw: int = 0
) -> tuple[Update, ClientState]:
    """What arrives of an update, and what its client keeps then."""
    remainder = remainder_of(reference, WORK, sent.masks)
    whole = remainder.added(sent, state)
    one, wire = Examples(targets=torch.zeros(1, dtype=torch.int64)), WireConfig(values=values, max_change=0.0)
    task = ClientTask(0, draw, WORK, Message().read_as(reference), one, wire=wire)
    arrived = decode_update(encode_update(whole, task), task)
    return arrived, remainder.written(state, remainder.left_out(whole, arrived))


def kept(reference: Reference, state: ClientState, masks: Masks | None = None) -> list[float]:
    """What a client adds to an answer to this broadcast: to `b`, then to those weights of `w` that it holds."""
    row = remainder_of(reference, WORK, masks).read(state)
    assert row is not None
    values: list[float] = row.tolist()
    return values


def test_by_hand() -> None:
    """Of six weights `top8` sends the one that has changed most, and of one that one."""
    first = broadcast([1.0] * 6)
    arrived, state = exchanged(update(first, [1.0, 1.5, 1.0, 0.75, 1.0, 1.125]), first, ClientState(), "top8")
    assert arrived.params["w"].flatten().tolist() == [1, 1.5, 1, 1, 1, 1]
    assert kept(first, state) == [0, 0, 0, 0, -0.25, 0, 0.125]
    second = broadcast([2.0] * 6, round=2)
    arrived, state = exchanged(update(second, [2.0, 2.0, 2.0, 1.875, 2.125, 2.0]), second, state, "top8")
    assert arrived.params["w"].flatten().tolist() == [2, 2, 2, 1.625, 2, 2]  # −0.25 from before and −0.125 now
    assert kept(second, state) == [0, 0, 0, 0, 0, 0.125, 0.125]


def test_under_a_mask_only_what_is_held_is_kept() -> None:
    reference = broadcast([1, 0, 2, 3, 0, 0], BITS)
    arrived, state = exchanged(update(reference, [1.25, 2.5, 2.875], 0.5), reference, ClientState(), "top8")
    assert arrived.params["w"].tolist() == [1, 2.5, 3]
    assert arrived.params["b"].tolist() == [0.5]
    assert kept(reference, state) == [0, 0.25, 0, -0.125]
    assert {value.dtype: value.numel() for value in state.feedback.values()} == {torch.bfloat16: 4, torch.uint8: 1}


@pytest.fixture
def state() -> ClientState:
    """A client that keeps 0.25, 0.5 and −0.125 of the weights 0, 2 and 3, and 1 of the bias."""
    reference = broadcast([1, 0, 2, 3, 0, 0], BITS)
    return remainder_of(reference, WORK).written(
        ClientState({"own": torch.ones(2)}), torch.tensor([1, 0.25, 0.5, -0.125], dtype=torch.bfloat16)
    )


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ([1, 0, 1, 1, 0, 0], [1, 0.25, 0.5, -0.125]),
        ([1, 1, 0, 1, 0, 0], [1, 0.25, 0, -0.125]),
        ([0, 1, 0, 0, 1, 1], [1, 0, 0, 0]),
        ([1, 1, 1, 1, 1, 1], [1, 0.25, 0, 0.5, -0.125, 0, 0]),
        ([0, 0, 0, 0, 0, 0], [1]),
        (None, [1, 0.25, 0, 0.5, -0.125, 0, 0]),
    ],
)
def test_weights_that_are_still_held_have_their_own(
    mask: list[int] | None, expected: list[float], state: ClientState
) -> None:
    other = None if mask is None else torch.tensor(mask, dtype=torch.bool)
    assert kept(broadcast([1.0] * 6, other), state) == expected
    if other is not None:  # the same where the client itself has moved its mask
        assert kept(broadcast([1.0] * 6, BITS), state, {"w": other.view(2, 3)}) == expected


def test_what_left_the_mask_is_forgotten_even_if_it_comes_back(state: ClientState) -> None:
    away = broadcast([1.0] * 6, torch.tensor([False, True, False, True, True, False]))
    remainder = remainder_of(away, WORK)
    row = remainder.read(state)
    assert row is not None
    state = remainder.written(state, row)
    assert kept(broadcast([1, 0, 2, 3, 0, 0], BITS), state) == [1, 0, 0, -0.125]


def test_from_dense_to_sparse() -> None:
    dense = broadcast([1.0] * 6)
    row = torch.arange(7.0, dtype=torch.bfloat16)
    state = remainder_of(dense, WORK).written(ClientState(), row)
    assert kept(broadcast([1.0] * 6, BITS), state) == [0, 1, 3, 4]
    state = remainder_of(broadcast([1.0] * 6, BITS), WORK).written(state, row[:4])
    back = remainder_of(dense, WORK).written(state, row)
    assert kept(dense, back) == row.tolist()


def test_what_a_method_keeps_is_left_alone(state: ClientState) -> None:
    assert list(state.tensors) == ["own"]
    assert not state.empty
    assert ClientState().empty


def test_other_parameters_have_a_remainder_of_their_own(state: ClientState) -> None:
    reference = broadcast([1, 0, 2, 3, 0, 0], BITS)
    part = remainder_of(reference, replace(WORK, keep=frozenset({"w"})))
    assert part.read(state) is None
    both = part.written(state, torch.tensor([3.0], dtype=torch.bfloat16))
    assert part.read(both) == torch.tensor([3.0])
    assert kept(reference, both) == [1, 0.25, 0.5, -0.125]


def test_an_update_without_parameters_leaves_nothing(state: ClientState) -> None:
    reference = broadcast([1.0] * 6, BITS)
    remainder = remainder_of(reference, replace(WORK, train=False))
    sent = Update(0, 1, 1, {})
    assert remainder.added(sent, state) is sent
    assert remainder.written(state, remainder.left_out(sent, sent)) is state


@settings(max_examples=60)
@given(
    codec=st.sampled_from(["q8", "q4", "q2", "top8", "top16", "top32"]),
    rounds=st.integers(1, 6),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    dense=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_nothing_is_lost_for_good(codec: str, rounds: int, density: float, dense: bool, seed: int) -> None:
    """What has arrived in all rounds, and what is kept in the end, is what was to be sent."""
    draws = np.random.default_rng(seed)
    masks = {} if dense else {"w": torch.from_numpy(draws.random((9, 20)) < density)}
    state, wanted, found, largest = ClientState(), torch.zeros(()).double(), torch.zeros(()).double(), 0.0
    for round in range(1, rounds + 1):
        weights = {"b": torch.from_numpy(draws.normal(size=3)), "w": torch.from_numpy(draws.normal(size=(9, 20)))}
        reference = Reference(Broadcast(round, masked({n: v.float() for n, v in weights.items()}, masks), {}, masks))
        before = reference.values
        after = {n: v + torch.from_numpy(draws.normal(scale=0.1, size=v.shape)).float() for n, v in before.items()}
        arrived, state = exchanged(Update(0, round, 1, after), reference, state, codec, draw=round)
        wanted = wanted + joined(after) - joined(before)
        found = found + joined(arrived.params) - joined(before)
        left = torch.tensor(kept(reference, state), dtype=torch.float64)
        largest = max(largest, float(left.abs().max()))
    rounding = rounds * (largest * 2**-8 + 1e-6)  # a bfloat16 has eight bits
    assert float((wanted - found - left).abs().max()) <= rounding


def joined(tensors: Tensors) -> Tensor:
    return torch.cat([value.reshape(-1).double() for _, value in sorted(tensors.items())])


@pytest.mark.parametrize("values", ["float32", "bfloat16", "float16"])
def test_it_needs_a_codec_of_changes(values: str) -> None:
    with pytest.raises(OptionError, match=f"with wire.feedback, wire.values must be one of q8, .*, got '{values}'"):
        WireConfig(values=values, feedback=True).check()
