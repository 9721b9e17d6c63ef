"""How far clients' masks are apart: by hand, pair by pair, and however the counts came together."""

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feddst.core import Masks, Place, SparseSum, Stack, Update, packed, positions_of
from feddst.core.holders import Holders

SENT = {"w": torch.tensor([True, True, False, False])}


def masks(*kept: int) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor([place in kept for place in range(4)])}


def counted(*clients: Masks | None) -> Holders:
    holders = Holders(SENT)
    for one in clients:
        holders.add(one)
    return holders


def test_three_clients_by_hand() -> None:
    # They hold {0, 1} as it was sent, {0, 2} and {2, 3}. The first two lack half of each other's weights, so do the
    # last two; the first and the third have nothing in common. (½ + ½ + 1)/3.
    assert counted(None, masks(0, 2), masks(2, 3)).apart() == {"w": pytest.approx(2 / 3)}


def test_masks_of_unequal_size_by_hand() -> None:
    # Of {0}, {0, 1, 2}: nobody lacks 0, and two of the four weights that clients hold are lacking to the other.
    assert counted(masks(0), masks(0, 1, 2)).apart() == {"w": 0.5}


def test_equal_masks_are_not_apart_and_nobody_is_apart_alone() -> None:
    assert counted(masks(0, 1), None, None).apart() == {"w": 0.0}
    assert counted(masks(0, 2)).apart() == {}
    assert counted(None, None).apart() == {}
    assert counted(masks(), masks()).apart() == {}


def test_a_layer_that_only_some_have_a_mask_for_is_held_whole_by_the_others() -> None:
    holders = counted(masks(0, 1), None)
    holders.add({**masks(0, 1), "v": torch.tensor([True, False])})
    # v: two clients hold both weights, one the first alone. Of five, c·(N − c) = 3·0 + 2·1 over (3 − 1)·5.
    assert holders.apart() == {"w": 0.0, "v": pytest.approx(2 / 10)}
    holders = counted(None)
    holders.add({"v": torch.tensor([True, True])})
    # w: one client holds the two that were sent, the other all four: 2·1 over (2 − 1)·6.
    assert holders.apart() == {"w": pytest.approx(1 / 3), "v": 0.0}


own = st.none() | st.sets(st.integers(0, 3), min_size=2, max_size=2)
cohorts = st.lists(st.tuples(st.integers(1, 1000), own), min_size=2, max_size=8)


@given(cohorts, st.integers(0, 8))
def test_it_is_the_mean_over_pairs_whatever_the_weights_and_in_whatever_parts(
    cohort: list[tuple[int, set[int] | None]], cut: int
) -> None:
    updates = [_update(weight, kept) for weight, kept in cohort]
    whole, merged = _summed(updates), SparseSum(SENT, count_holders=True)
    merged.merge(_summed(updates[cut:]))
    merged.merge(_summed(updates[:cut]))
    assert merged.apart() == whole.apart()
    held = [{0, 1} if kept is None else kept for _, kept in cohort]
    if all(kept is None for _, kept in cohort):
        assert whole.apart() == {}
    else:
        pairs = [len(one - other) / 2 for one, other in permutations(held, 2)]  # all hold two weights
        assert whole.apart() == {"w": pytest.approx(sum(pairs) / len(pairs))}
    assert SparseSum(SENT).apart() == {}


@given(st.lists(st.sets(st.integers(0, 3)), min_size=2, max_size=5))
def test_clients_side_by_side_are_counted_as_one_by_one(held: list[set[int]]) -> None:
    updates = [_update(row + 1, kept) for row, kept in enumerate(held)]
    rows = torch.tensor([[place in kept for place in range(4)] + [False] for kept in held])
    places = {
        ("params", "w"): Place(0, torch.Size([4]), torch.float32, masked=True),
        ("params", "b"): Place(4, torch.Size([1]), torch.float32),
    }
    weights = [update.weight for update in updates]
    together = SparseSum(SENT, count_holders=True)
    together.add_stack(Stack(rows.float(), weights, places, rows.to(torch.uint8)), updates=len(held))
    reports = {("gradient", "w"): Place(0, torch.Size([4]), torch.float32)}
    together.add_stack(Stack(rows.float(), weights, reports), updates=0)
    assert together.apart() == _summed(updates).apart()
    unchanged = SparseSum(SENT, count_holders=True)
    unchanged.add_stack(Stack(rows.float(), weights, places), updates=len(held))
    assert unchanged.apart() == {}
    unchanged.merge(together)
    assert unchanged.apart() == _summed([*updates, *(_update(1, None) for _ in held)]).apart()


def _update(weight: int, kept: set[int] | None) -> Update:
    mine = None if kept is None else masks(*kept)
    params = packed({"w": torch.ones(4), "b": torch.ones(1)}, positions_of(SENT if mine is None else mine))
    return Update(client=0, round=1, weight=weight, params=params, masks=mine)


def _summed(updates: list[Update]) -> SparseSum:
    total = SparseSum(SENT, count_holders=True)
    for one in updates:
        total.add(one)
    return total
