"""Masks: exact counts, growth among the inactive, and ties broken the same way everywhere."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from feddst.sparsity import drop_smallest, grow_from_any, grow_largest, keep_largest
from feddst.sparsity.masks import top


def bools(*rows: str) -> Tensor:
    return torch.tensor([[c == "1" for c in row] for row in rows])


def test_keep_largest_by_hand() -> None:
    weights = torch.tensor([[3.0, -4.0, 1.0, -2.0], [0.0, 0.5, -0.5, 0.1]])
    assert torch.equal(keep_largest(weights, 2), bools("1100", "0110"))


def test_ties_go_to_the_lower_index() -> None:
    assert torch.equal(keep_largest(torch.tensor([[1.0, -1.0, 1.0, -1.0]]), 2), bools("1100"))


def test_ties_go_first_to_what_was_held() -> None:
    held = bools("0011")
    assert torch.equal(keep_largest(torch.tensor([[1.0, -1.0, 1.0, -1.0]]), 2, held=held), bools("0011"))
    assert torch.equal(keep_largest(torch.tensor([[1.0, 2.0, 1.0, 1.0]]), 2, held=held), bools("0110"))


def test_drop_and_grow_by_hand() -> None:
    weights, mask = torch.tensor([[5.0, -1.0, 2.0, 0.0, 0.0]]), bools("11100")
    kept = drop_smallest(weights, mask, 1)
    assert torch.equal(kept, bools("10100"))
    gradient = torch.tensor([[9.0, 0.0, 9.0, 1.0, 3.0]])
    assert torch.equal(grow_largest(gradient, kept, 1), bools("10101"))
    assert torch.equal(grow_largest(gradient, kept, 2), bools("10111"))


def test_a_dropped_weight_comes_back_when_no_gradient_says_otherwise() -> None:
    mask, kept = bools("0011"), bools("0010")
    assert torch.equal(grow_largest(torch.zeros(1, 4), kept, 1, held=mask), mask)
    assert torch.equal(grow_largest(torch.zeros(1, 4), kept, 1), bools("1010"))


def test_published_growth_picks_survivors_and_misses_the_budget() -> None:
    grown, picked = grow_from_any(torch.tensor([[9.0, 8.0, 1.0, 7.0]]), bools("1000"), 2)
    assert torch.equal(picked, bools("1100"))
    assert torch.equal(grown, bools("1100"))


def test_more_than_there_is_cannot_be_chosen() -> None:
    with pytest.raises(ValueError, match="fewer candidates"):
        top(torch.ones(1, 3), 2, among=bools("100"))
    with pytest.raises(ValueError, match="cannot choose 4 of 3"):
        top(torch.ones(1, 3), 4)


@st.composite
def layers(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, int]:
    """M models of n weights and gradients, often tied, each with the same number of active weights."""
    models, n = draw(st.integers(1, 4)), draw(st.integers(1, 24))
    values = st.lists(st.integers(-3, 3), min_size=models * n, max_size=models * n)
    active = draw(st.integers(0, n))
    order = torch.tensor([draw(st.permutations(range(n))) for _ in range(models)])
    mask = torch.zeros(models, n, dtype=torch.bool).scatter_(1, order[:, :active], True)
    weights = torch.tensor(draw(values), dtype=torch.float32).reshape(models, n) * mask
    gradient = torch.tensor(draw(values), dtype=torch.float32).reshape(models, n)
    return weights, gradient, mask, draw(st.integers(0, active))


@given(layers())
def test_prune_and_grow_keep_exact_budgets_and_touch_no_active_weight(
    layer: tuple[Tensor, Tensor, Tensor, int],
) -> None:
    weights, gradient, mask, count = layer
    budget = int(mask[0].sum())
    kept = drop_smallest(weights, mask, count)
    grown = grow_largest(gradient.abs(), kept, count, held=mask)
    assert kept.sum(dim=1).tolist() == [budget - count] * len(mask)
    assert grown.sum(dim=1).tolist() == [budget] * len(mask)
    assert torch.equal(kept & mask, kept)
    assert torch.equal(grown & kept, kept)


@given(layers())
def test_drop_and_grow_take_the_smallest_and_the_largest(layer: tuple[Tensor, Tensor, Tensor, int]) -> None:
    weights, gradient, mask, count = layer
    kept = drop_smallest(weights, mask, count)
    grown = grow_largest(gradient.abs(), kept, count, held=mask)
    for m in range(len(mask)):
        _assert_ordered(weights[m].abs(), kept[m], mask[m] & ~kept[m])
        _assert_ordered(gradient[m].abs(), grown[m] & ~kept[m], ~grown[m])


@given(layers())
def test_models_side_by_side_are_independent(layer: tuple[Tensor, Tensor, Tensor, int]) -> None:
    weights, _, mask, count = layer
    together = drop_smallest(weights, mask, count)
    alone = [drop_smallest(weights[m : m + 1], mask[m : m + 1], count) for m in range(len(mask))]
    assert torch.equal(together, torch.cat(alone))


def _assert_ordered(score: Tensor, chosen: Tensor, passed_over: Tensor) -> None:
    if chosen.any() and passed_over.any():
        assert score[chosen].min() >= score[passed_over].max()
