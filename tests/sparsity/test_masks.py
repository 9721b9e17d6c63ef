"""Masks: exact counts, growth among the inactive, and ties broken the same way everywhere."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
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


def by_definition(score: Tensor, count: int, among: Tensor | None, held: Tensor | None) -> Tensor:
    """What `top` means, as stable sorts: by falling score, among equals what was held first, then by flat index."""
    models = score.shape[0]
    flat = score.reshape(models, -1)
    if among is not None:
        flat = flat.masked_fill(~among.reshape(models, -1), -torch.inf)
    order = torch.arange(flat.shape[1]).expand_as(flat)
    if held is not None:
        order = torch.argsort(held.reshape(models, -1).to(torch.int8), dim=1, descending=True, stable=True)
    ranks = torch.argsort(flat.gather(1, order), dim=1, descending=True, stable=True)
    chosen = order.gather(1, ranks[:, :count])
    return torch.zeros_like(flat, dtype=torch.bool).scatter_(1, chosen, True).reshape(score.shape)


Choice = tuple[Tensor, int, Tensor | None, Tensor | None]
LEVELS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("inf"), 1e-45, 3e38]


@st.composite
def choices(draw: st.DrawFn, levels: Sequence[float] = LEVELS) -> Choice:
    """Scores of few different values, and how many to choose of which."""
    shape = (draw(st.integers(1, 3)), *draw(st.sampled_from([(1,), (5,), (4, 6), (2, 3, 7), (40,)])))
    few = draw(st.lists(st.sampled_from(levels), min_size=1, max_size=4))
    draws = np.random.default_rng(draw(st.integers(0, 2**32)))
    score = torch.from_numpy(draws.choice(np.array(few), shape)).to(draw(st.sampled_from(DTYPES)))
    among, held = (
        torch.from_numpy(draws.random(shape) < share) if share is not None else None
        for share in draw(st.tuples(*[st.sampled_from([None, 0.0, 0.2, 0.8, 1.0])] * 2))
    )
    most = score[0].numel() if among is None else int(among.flatten(1).sum(dim=1).min())
    return score, draw(st.integers(0, most)), among, held


DTYPES = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16]


@settings(max_examples=400)
@given(choices())
def test_the_choice_is_the_one_that_stable_sorts_would_make(choice: Choice) -> None:
    score, count, among, held = choice
    found = top(score, count, among=among, held=held)
    assert found.dtype is torch.bool
    assert torch.equal(found, by_definition(score, count, among, held))


@given(choices([0.0, 1.0, float("nan"), float("inf")]))
def test_what_is_not_a_number_counts_as_the_largest(choice: Choice) -> None:
    score, count, among, held = choice
    assert torch.equal(top(score, count, among=among, held=held), by_definition(score, count, among, held))


@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.95, 0.999])
def test_a_layer_of_real_size_with_many_zero_gradients(zeros: float) -> None:
    draws = torch.Generator().manual_seed(1)
    mask = torch.rand(1, 50_000, generator=draws) < 0.2
    score = torch.rand(mask.shape, generator=draws) * (torch.rand(mask.shape, generator=draws) >= zeros)
    for among, count in ((~mask, 500), (mask, 9000), (None, 500)):
        assert torch.equal(top(score, count, among=among, held=mask), by_definition(score, count, among, mask))


@given(
    st.integers(2000, 20_000),
    st.integers(0, 400),
    st.sampled_from([1, 2, 5, 1000]),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.integers(0, 2**32),
)
def test_a_sample_that_misleads_changes_nothing(n: int, count: int, levels: int, factor: float, seed: int) -> None:
    """Scores of few or many levels, of which those in the sample are smaller than others, or larger."""
    draws = np.random.default_rng(seed)
    score = torch.from_numpy(draws.integers(levels, size=(2, n))).float()
    score[:, ::61] *= factor
    among, held = (torch.from_numpy(draws.random((2, n)) < share) for share in (0.7, 0.3))
    assert torch.equal(top(score, count, among=among, held=held), by_definition(score, count, among, held))


def test_what_is_chosen_is_nobody_elses() -> None:
    among = bools("1100")
    found = top(torch.ones(1, 4), 2, among=among)
    found[0, 0] = False
    assert torch.equal(among, bools("1100"))


def test_scores_that_are_being_differentiated_can_be_chosen_from() -> None:
    assert torch.equal(keep_largest(torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True), 1), bools("001"))


def _assert_ordered(score: Tensor, chosen: Tensor, passed_over: Tensor) -> None:
    if chosen.any() and passed_over.any():
        assert score[chosen].min() >= score[passed_over].max()
