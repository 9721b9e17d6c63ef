"""Named tensors: masked, counted, packed and spread, to the last bit."""

import pytest
import torch
from torch import Tensor

from feddst.core import count_active, count_kept, masked, packed, positions_in, positions_of, unpacked
from feddst.core.tensors import movement, spread

MASK = torch.tensor([[True, False, True], [False, False, True]])
VALUES = torch.tensor([[1.0, -2.0, -0.0], [float("nan"), -float("inf"), 3.0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_masking_is_multiplication(dtype: torch.dtype) -> None:
    values = VALUES.to(dtype)
    found = masked({"w": values, "b": values}, {"w": MASK})
    assert _bits(found["w"]) == _bits(values * MASK)
    assert found["b"] is values


def test_counts_and_positions_by_hand() -> None:
    for mask in (MASK, MASK.t(), MASK.expand(2, 2, 3)):
        assert count_kept(mask) == int(mask.sum())
        assert positions_in(mask).tolist() == mask.reshape(-1).nonzero().reshape(-1).tolist()
    assert count_active({"w": MASK}) == {"w": 3}
    assert positions_in(MASK).tolist() == [0, 2, 5]


def test_movement_is_counted_mask_by_mask() -> None:
    before = {"a": torch.tensor([True, True, False]), "b": torch.tensor([True]), "c": torch.tensor([True])}
    after = {"a": torch.tensor([False, False, True]), "b": before["b"], "d": torch.tensor([False])}
    assert movement(before, after) == {"a": (1, 2)}  # b is the same object, c has gone, d has no mask to move from
    assert movement(before, before) == {}


def test_what_was_packed_is_unpacked_with_zeros_around_it() -> None:
    positions = positions_of({"w": MASK})
    found = packed({"w": VALUES, "b": VALUES}, positions)
    assert found["w"].tolist() == [1.0, -0.0, 3.0]
    assert _bits(unpacked(found, positions, {"w": MASK})["w"]) == _bits(torch.where(MASK, VALUES, 0.0))


def test_values_are_spread_over_zeros_or_over_what_was_there() -> None:
    values, positions = torch.tensor([7.0, 8.0]), torch.tensor([1, 4])
    assert spread(values, positions, torch.Size([2, 3])).tolist() == [[0, 7, 0], [0, 8, 0]]
    before = torch.arange(6.0, dtype=torch.float64).reshape(3, 2).t()
    found = spread(values, positions, before.shape, before)
    assert (found.dtype, found.tolist()) == (torch.float32, [[0, 7, 4], [1, 8, 5]])
    assert before[0, 1] == 2


def _bits(value: Tensor) -> bytes:
    return value.contiguous().view(torch.uint8).numpy().tobytes()
