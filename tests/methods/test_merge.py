"""What FedDST's server makes of masks that differ: by hand, and exact counts whatever clients send."""

from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feddst.core import InitialModel, Layer, ServerState, SparseSum, Update, count_active, packed, positions_of
from feddst.methods import Adaptive, FedDST, ServerOptimizer
from feddst.methods.feddst import MaskMerge, by_votes
from feddst.sparsity import Sparsity

Grown = Literal["holders", "all"]
Keep = Literal["largest", "most-held"]


def method(grown: Grown, keep: Keep) -> FedDST:
    return FedDST(sparsity=Sparsity(0.5, "uniform"), merge=MaskMerge(grown, keep))


def begun(one: FedDST, weights: list[float]) -> ServerState:
    params = {"w": torch.tensor([weights])}
    return one.init(InitialModel(params, (Layer("w", (1, len(weights))),)), seed=0)


def update(weight: int, values: list[float], mask: list[bool]) -> Update:
    masks = {"w": torch.tensor([mask])}
    return Update(0, 1, weight, packed({"w": torch.tensor([values])}, positions_of(masks)), masks=masks)


@pytest.mark.parametrize(
    ("grown", "keep", "after"),
    [
        ("holders", "largest", [2.5, 0.0, 3.0, 0.0]),  # as the paper has it: what one of two has grown beats 1
        ("all", "largest", [2.5, 1.0, 0.0, 0.0]),  # (1·3 + 3·0)/4 = 0.75 does not
        ("holders", "most-held", [2.5, 1.0, 0.0, 0.0]),  # four votes, three and one
        ("all", "most-held", [2.5, 1.0, 0.0, 0.0]),
    ],
)
def test_two_clients_who_disagree(grown: Grown, keep: Keep, after: list[float]) -> None:
    """Of four weights two are broadcast. The first client drops one and grows another, the second keeps both."""
    one = method(grown, keep)
    state = begun(one, [3.0, 2.0, 0.5, 0.25])
    assert state.masks["w"].tolist() == [[True, True, False, False]]
    total = SparseSum(state.masks)
    total.add(update(1, [4.0, 0.0, 3.0, 0.0], [True, False, True, False]))
    total.add(update(3, [2.0, 1.0, 0.0, 0.0], [True, True, False, False]))
    assert one.aggregate(state, total).params["w"].tolist() == [after]


def test_what_only_some_have_grown_enters_by_their_share() -> None:
    one = method("all", "largest")
    state = begun(one, [3.0, 2.0, 0.5, 0.25])
    total = SparseSum(state.masks)
    total.add(update(1, [8.0, 0.0, 0.0, -8.0], [True, False, False, True]))
    total.add(update(3, [8.0, 0.0, 4.0, 0.0], [True, False, True, False]))
    after = one.aggregate(state, total)
    assert after.params["w"].tolist() == [[8.0, 0.0, 3.0, 0.0]]  # 4·¾ = 3, and 8·¼ = 2


def test_an_adaptive_server_steps_as_if_the_others_had_sent_zeros() -> None:
    """One client of twenty has grown a weight; with a mask of all weights, the others send it too, as 0."""
    adaptive, adam = Adaptive(lr=1.0), ServerOptimizer("adam")
    after = []
    for one, held in (
        (FedDST(sparsity=Sparsity(0.5, "uniform"), server=adam, adaptive=adaptive, merge=MaskMerge("all")), False),
        (FedDST(sparsity=Sparsity(0.5, "uniform"), server=adam, adaptive=adaptive), True),
    ):
        state = begun(one, [3.0, 2.0, 0.5, 0.25])
        total = SparseSum(state.masks)
        total.add(update(1, [0.0, 0.0, 8.0, 0.0], [True, True, True, False]))
        total.add(update(19, [0.0] * 4, [True, True, held, False]))
        after.append(one.step(state, total))
    for found, expected in zip(*after, strict=True):
        assert all(torch.allclose(found[name], value, rtol=1e-6, atol=0) for name, value in expected.items())
    assert after[0][1]["m/w"][0, 2] == pytest.approx(0.1 * 8 / 20)


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(-100, 100, width=32)), min_size=1, max_size=20))
def test_votes_come_first_and_size_second(weights: list[tuple[int, float]]) -> None:
    votes, theta = (torch.tensor(list(column)) for column in zip(*weights, strict=True))
    scores = by_votes({"w": theta}, {"w": votes})["w"].tolist()
    for (n, size), score in zip(weights, scores, strict=True):
        for (m, other), against in zip(weights, scores, strict=True):
            if n > m or (n == m and abs(size) > abs(other) * (1 + 1e-9) + 1e-9):
                assert score > against


@given(
    st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5),
    st.sampled_from(["holders", "all"]),
    st.sampled_from(["largest", "most-held"]),
)
def test_layers_keep_their_budget_or_all_that_is_held(masks: list[list[bool]], grown: Grown, keep: Keep) -> None:
    one = method(grown, keep)
    state = begun(one, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    total = SparseSum(state.masks)
    for n, mask in enumerate(masks, 1):
        total.add(update(n, [float(n + i) for i in range(6)], mask))
    held = sum(map(any, zip(*masks, strict=True)))
    after = one.aggregate(state, total)
    assert count_active(after.masks) == {"w": min(3, held)}
    assert after.params["w"][~after.masks["w"]].eq(0).all()
