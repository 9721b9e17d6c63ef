"""The streaming sum: hand-computed means, and independence of order and grouping to the last bit."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, get_args
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from feddst.core import Masks, Place, SparseSum, Stack, Update, packed, positions_of
from feddst.errors import TrainingError

MASK = {"w": torch.tensor([True, True, True, False])}


def update(
    client: int, weight: int, w: Sequence[float], mask: Sequence[bool] | None = None, bias: float = 0.0
) -> Update:
    masks = None if mask is None else {"w": torch.tensor(mask)}
    params = {"w": torch.tensor(w, dtype=torch.float32), "b": torch.tensor([bias], dtype=torch.float32)}
    held = packed(params, positions_of(MASK if masks is None else masks))
    return Update(client=client, round=1, weight=weight, params=held, masks=masks)


def test_each_weight_is_averaged_over_those_who_hold_it() -> None:
    total = SparseSum(MASK)
    total.add(update(0, 1, [4.0, 2.0, 0.0, 9.0], bias=1.0))
    total.add(update(1, 3, [8.0, 0.0, 5.0, 7.0], mask=[True, False, True, False], bias=2.0))
    # w0: (1·4 + 3·8)/4 = 7; w1: only client 0 holds it; w2: (1·0 + 3·5)/4; w3: nobody. Bias: (1·1 + 3·2)/4.
    assert total.mean()["w"].tolist() == [7.0, 2.0, 3.75, 0.0]
    assert total.mean()["b"].tolist() == [1.75]
    assert total.held()["w"].tolist() == [True, True, True, False]
    assert total.votes()["w"].tolist() == [4, 1, 4, 0]
    assert (total.updates, total.weight) == (2, 4)


def test_where_nobody_holds_a_weight_the_old_value_can_stay() -> None:
    total = SparseSum(MASK)
    total.add(update(0, 1, [4.0, 2.0, 0.0, 9.0]))
    old = {"w": torch.tensor([-1.0, -2.0, -3.0, -4.0]), "b": torch.tensor([-5.0])}
    assert total.mean(otherwise=old)["w"].tolist() == [4.0, 2.0, 0.0, -4.0]


def test_buffers_and_extras_take_the_plain_mean_and_counters_stay_whole() -> None:
    total = SparseSum({})
    for weight, mean, seen, g in ((1, 0.0, 3, 1.0), (3, 4.0, 4, 5.0)):
        total.add(
            Update(
                client=weight,
                round=1,
                weight=weight,
                params={},
                buffers={"running_mean": torch.tensor([mean]), "seen": torch.tensor(seen)},
                extra={"gradient": {"w": torch.tensor([g])}},
            )
        )
    assert total.mean("buffers")["running_mean"].tolist() == [3.0]
    assert total.mean("buffers")["seen"].item() == 4  # (1·3 + 3·4)/4 = 3.75, rounded
    assert total.mean("buffers")["seen"].dtype == torch.int64
    assert total.mean("gradient")["w"].tolist() == [4.0]


Answer = tuple[int, list[float], list[bool] | None]
"""A client's weight, its values, and the mask it sends, if any."""

weights32 = st.floats(-1e6, 1e6, width=32)
clients = st.lists(
    st.tuples(
        st.integers(1, 10_000),
        st.lists(weights32, min_size=4, max_size=4),
        st.none() | st.lists(st.booleans(), min_size=4, max_size=4),
    ),
    min_size=1,
    max_size=8,
)


@given(clients, st.randoms(use_true_random=False), st.integers(0, 8))
def test_result_does_not_depend_on_order_or_merging(answers: list[Answer], random: "object", cut: int) -> None:
    updates = [update(i, n, w, mask, bias=w[0]) for i, (n, w, mask) in enumerate(answers)]
    in_order = _summed(updates)
    shuffled = list(updates)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    merged = SparseSum(MASK)
    merged.merge(_summed(shuffled[cut:]))
    merged.merge(_summed(shuffled[:cut]))
    for name, mean in in_order.mean().items():
        assert _bits(mean) == _bits(_summed(shuffled).mean()[name]) == _bits(merged.mean()[name])


@given(clients)
def test_what_is_held_is_the_union_of_masks_and_the_rest_can_stay(answers: list[Answer]) -> None:
    total = _summed([update(i, n, w, mask) for i, (n, w, mask) in enumerate(answers)])
    masks = [MASK["w"] if mask is None else torch.tensor(mask) for _, _, mask in answers]
    union = torch.stack(masks).any(dim=0)
    assert torch.equal(total.held()["w"], union)
    weights = torch.tensor([n for n, _, _ in answers])
    assert torch.equal(total.votes()["w"], (weights[:, None] * torch.stack(masks)).sum(dim=0))
    old = {"w": torch.arange(4, dtype=torch.float32) - 9, "b": torch.zeros(1)}
    assert _bits(total.mean(otherwise=old)["w"]) == _bits(torch.where(union, total.mean()["w"], old["w"]))
    assert _bits(total.mean()["w"][~union]) == _bits(torch.zeros(int((~union).sum())))


@given(clients)
def test_sums_in_float64_and_in_int64_are_the_same(answers: list[Answer]) -> None:
    updates = [update(i, n, w, mask) for i, (n, w, mask) in enumerate(answers)]
    with patch("feddst.core.sparse_sum.LIGHT_ROOM", 0):
        wide = _summed(updates)
    for name, mean in _summed(updates).mean().items():
        assert _bits(mean) == _bits(wide.mean()[name])


def test_a_great_many_updates_are_summed_exactly() -> None:
    large = 2.0**-21 - 2.0**-45  # nearly half a coarse unit: the largest fine part there is
    total = _repeated(large, 2**15)
    total.merge(_repeated(2.0**-60, 1))
    total.merge(_repeated(-large, 2**15))
    assert total.updates == 2**16 + 1
    assert total.mean()["w"].item() * total.updates == pytest.approx(2.0**-60, rel=1e-6)


def _repeated(value: float, times: int) -> SparseSum:
    """The sum of so many equal updates, a power of two."""
    total = SparseSum({})
    total.add(Update(client=0, round=1, weight=1, params={"w": torch.tensor([value])}))
    while total.updates < times:
        half, total = total, SparseSum({})
        total.merge(half)
        total.merge(half)
    return total


def test_updates_of_several_forms_are_summed_tensor_by_tensor() -> None:
    total = SparseSum(MASK)
    total.add(Update(client=0, round=1, weight=1, params={"w": torch.tensor([1.0, 2.0, 3.0]), "b": torch.ones(2)}))
    total.add(Update(client=1, round=1, weight=3, params={"w": torch.tensor([5.0, 6.0, 7.0])}))
    assert total.mean()["w"].tolist() == [4.0, 5.0, 6.0, 0.0]
    assert total.mean()["b"].tolist() == [1.0, 1.0]
    assert list(total.mean()) == ["w", "b"]


def test_a_client_may_have_a_mask_where_others_hold_everything() -> None:
    whole = Update(client=0, round=1, weight=1, params={"w": torch.tensor([1.0, 2.0])})
    part = Update(
        client=1, round=1, weight=1, params={"w": torch.tensor([5.0])}, masks={"w": torch.tensor([False, True])}
    )
    for updates in ((whole, part), (part, whole)):
        total = SparseSum({})
        for one in updates:
            total.add(one)
        assert total.mean()["w"].tolist() == [1.0, 3.5]


def test_a_layer_without_a_mask_of_its_own_is_held_whole_by_a_client_with_masks() -> None:
    masks = {"v": torch.tensor([True, False]), "w": torch.tensor([True, False])}
    total = SparseSum(masks)
    total.add(Update(client=0, round=1, weight=1, params={"v": torch.ones(1), "w": torch.ones(1)}))
    own = Update(
        client=1,
        round=1,
        weight=1,
        params={"v": torch.tensor([3.0]), "w": torch.tensor([5.0, 7.0])},
        masks={"v": masks["v"]},
    )
    total.add(own)
    assert total.mean()["v"].tolist() == [2.0, 0.0]
    assert total.mean()["w"].tolist() == [3.0, 7.0]


@given(st.integers(1, 2**28), st.floats(-1e3, 1e3, width=32).filter(lambda v: v == 0 or abs(v) > 2.0**-36))
def test_the_mean_of_one_client_is_that_client(weight: int, value: float) -> None:
    total = SparseSum({})
    total.add(Update(client=0, round=1, weight=weight, params={"w": torch.tensor([value])}))
    assert total.mean()["w"].item() == value


@given(clients)
def test_mean_agrees_with_rational_arithmetic(answers: list[Answer]) -> None:
    from fractions import Fraction

    total = _summed([update(i, n, w, mask) for i, (n, w, mask) in enumerate(answers)])
    for k in range(4):
        held = [(n, Fraction(w[k])) for n, w, mask in answers if (MASK["w"] if mask is None else mask)[k]]
        exact = sum((n * w for n, w in held), Fraction(0)) / (sum(n for n, _ in held) or 1)
        assert total.mean()["w"][k].item() == pytest.approx(float(exact), rel=1e-7, abs=2.0**-60)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_values_that_cannot_be_averaged_are_refused(value: float) -> None:
    with pytest.raises(TrainingError, match="too large to average"):
        SparseSum({}).add(Update(client=0, round=1, weight=1, params={"w": torch.tensor([value])}))


def test_sums_refuse_to_overflow() -> None:
    total = SparseSum({})
    huge = Update(client=0, round=1, weight=2**40, params={"w": torch.tensor([3.9])})
    total.add(huge)
    with pytest.raises(TrainingError, match="too large to average"):
        total.add(huge)


def _summed(updates: Sequence[Update]) -> SparseSum:
    total = SparseSum(MASK)
    for one in updates:
        total.add(one)
    return total


def _bits(value: Tensor) -> bytes:
    return value.numpy().tobytes()


Form = Literal["own masks", "the broadcast's, whole", "the broadcast's, kept"]
FORMS = st.sampled_from(get_args(Form))


def _stack(form: Form, rows: Tensor, held: Tensor, weights: Sequence[int], sent: Tensor = MASK["w"]) -> Stack:
    """Rows of w and b; held: bool [K, 4], what each client has of w, which was sent under a mask."""
    kept = int(sent.sum()) if form == "the broadcast's, kept" else None
    w = Place(0, torch.Size([4]), torch.float32, masked=True, kept=kept)
    places = {("params", "b"): Place(w.columns.stop, torch.Size([1]), torch.float32), ("params", "w"): w}
    if kept is not None:
        rows = torch.cat([rows[:, :4][:, sent], rows[:, 4:]], dim=1)
    beside = torch.cat([held, torch.zeros(len(held), 1, dtype=torch.bool)], dim=1).to(torch.uint8)
    return Stack(rows, weights, places, beside if form == "own masks" else None)


@given(st.integers(0, 99), FORMS)
def test_updates_side_by_side_add_up_as_one_by_one(seed: int, form: Form) -> None:
    own = form == "own masks"
    draws = torch.Generator().manual_seed(seed)
    weights = [1, 3, 2**24 + 1]
    held = torch.rand(3, 4, generator=draws) < 0.6 if own else torch.stack([MASK["w"]] * 3)
    values = torch.randn(3, 4, generator=draws) * held
    biases = torch.randn(3, 1, generator=draws)
    one_by_one, together = SparseSum(MASK), SparseSum(MASK)
    for row, weight in enumerate(weights):
        mask = held[row].tolist() if own else None
        one_by_one.add(update(row, weight, values[row].tolist(), mask, float(biases[row])))
    together.add_stack(_stack(form, torch.cat([values, biases], dim=1), held, weights), updates=3)
    otherwise = {"w": torch.full((4,), 7.0), "b": torch.zeros(1)}
    for name in ("w", "b"):
        assert torch.equal(together.mean()[name], one_by_one.mean()[name])
        assert torch.equal(together.mean(otherwise=otherwise)[name], one_by_one.mean(otherwise=otherwise)[name])
    assert torch.equal(together.held()["w"], one_by_one.held()["w"])
    assert torch.equal(together.votes()["w"], one_by_one.votes()["w"])
    assert (together.updates, together.weight) == (one_by_one.updates, one_by_one.weight) == (3, sum(weights))


@given(
    st.lists(st.tuples(st.booleans(), FORMS, st.integers(1, 3)), min_size=1, max_size=5),
    st.integers(0, 5),
    st.integers(0, 99),
)
def test_stacks_and_single_updates_add_up_in_any_mixture(
    parts: list[tuple[bool, Form, int]], cut: int, seed: int
) -> None:
    """Parts of clients with the broadcast's masks or their own, side by side or one by one, in two sums or in one."""
    draws = torch.Generator().manual_seed(seed)
    one_by_one, halves = SparseSum(MASK), [SparseSum(MASK), SparseSum(MASK)]
    for number, (stacked, form, clients) in enumerate(parts):
        own = form == "own masks"
        held = torch.rand(clients, 4, generator=draws) < 0.6 if own else torch.stack([MASK["w"]] * clients)
        rows = torch.randn(clients, 5, generator=draws)
        rows[:, :4] *= held
        updates = [
            update(0, 1 + place, row[:4].tolist(), mask.tolist() if own else None, float(row[4]))
            for place, (row, mask) in enumerate(zip(rows, held, strict=True))
        ]
        half = halves[number >= cut]
        if stacked:
            half.add_stack(_stack(form, rows, held, [one.weight for one in updates]), updates=clients)
        for one in updates:
            one_by_one.add(one)
            if not stacked:
                half.add(one)
    halves[0].mean()  # looking at a sum does not end it
    halves[0].merge(halves[1])
    for otherwise in (None, {"w": torch.full((4,), 7.0), "b": torch.zeros(1)}):
        wanted, found = one_by_one.mean(otherwise=otherwise), halves[0].mean(otherwise=otherwise)
        assert wanted.keys() == found.keys()
        assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert torch.equal(halves[0].held()["w"], one_by_one.held()["w"])
    assert (halves[0].updates, halves[0].weight) == (one_by_one.updates, one_by_one.weight)


# Sums whose clients were sent other masks.


def _under(sent: Masks, *updates: tuple[int, Sequence[float], float]) -> SparseSum:
    """The sum of updates under the mask they were sent: each its n_c, all four numbers of w, and b."""
    total = SparseSum(sent, count_holders=True)
    for weight, w, b in updates:
        total.add(_answer(weight, w, b, sent, None))
    return total


def _answer(weight: int, w: Sequence[float], b: float, sent: Masks, own: Masks | None) -> Update:
    params = {"w": torch.tensor(w, dtype=torch.float32), "b": torch.tensor([b], dtype=torch.float32)}
    return Update(0, 1, weight, packed(params, positions_of(sent if own is None else own)), masks=own)


FIRST = {"w": torch.tensor([True, True, False, False])}
SECOND = {"w": torch.tensor([True, False, True, False])}


def test_sums_under_two_masks_merge_to_the_mean_over_those_who_hold_a_weight() -> None:
    """w0: (1·4 + 3·8)/4 = 7; only the first holds w1, the second w2, nobody w3. b: (1·1 + 3·2)/4. Each client lacks one
    of the other's two weights."""
    total = _under(FIRST, (1, [4.0, 2.0, 9.0, 9.0], 1.0))
    assert total.apart() == {}
    total.merge(_under(SECOND, (3, [8.0, 9.0, 5.0, 9.0], 2.0)))
    assert total.mean()["w"].tolist() == [7.0, 2.0, 5.0, 0.0]
    old = {"w": torch.tensor([-1.0, -2.0, -3.0, -4.0]), "b": torch.tensor([-5.0])}
    assert total.mean(otherwise=old)["w"].tolist() == [7.0, 2.0, 5.0, -4.0]
    assert total.mean()["b"].tolist() == [1.75]
    assert total.held()["w"].tolist() == [True, True, True, False]
    assert total.votes()["w"].tolist() == [4, 1, 3, 0]
    assert (total.updates, total.weight) == (2, 4)
    assert total.apart() == {"w": 0.5}


def test_a_third_mask_and_a_client_with_one_of_its_own_by_hand() -> None:
    """Those who hold {0, 1} and {0, 2} lack half of each other's weights; a third was sent {0, 2} and has {2, 3}.

    Pairs: ½, 1 and ½. w0 is held by the first two, w2 by the last two: (2·4 + 1·8)/3 and (1·6 + 1·2)/2.
    """
    total, others = _under(FIRST, (2, [4.0, 1.0, 0.0, 0.0], 0.0)), _under(SECOND, (1, [8.0, 0.0, 6.0, 0.0], 0.0))
    own = {"w": torch.tensor([False, False, True, True])}
    others.add(_answer(1, [0.0, 0.0, 2.0, 3.0], 0.0, SECOND, own))
    total.merge(others)
    assert total.mean()["w"].tolist() == pytest.approx([16 / 3, 1.0, 4.0, 3.0])
    assert total.votes()["w"].tolist() == [3, 2, 2, 1]
    assert total.apart() == {"w": pytest.approx((0.5 + 1.0 + 0.5) / 3)}


@pytest.mark.parametrize("dense_first", [True, False])
def test_a_layer_that_some_were_sent_whole_is_held_whole_by_them(dense_first: bool) -> None:
    """b is 0 throughout. Of six weights held, two by both, two are lacking to the other: 2·1/((2 − 1)·6)."""
    whole, part = _under({}, (1, [1.0, 2.0, 3.0, 4.0], 0.0)), _under(FIRST, (1, [5.0, 6.0, 9.0, 9.0], 0.0))
    total, other = (whole, part) if dense_first else (part, whole)
    total.merge(other)
    assert total.mean()["w"].tolist() == [3.0, 4.0, 3.0, 4.0]
    assert total.held()["w"].all()
    assert total.votes()["w"].tolist() == [2, 2, 1, 1]
    assert total.apart() == {"w": pytest.approx(1 / 3)}


def test_a_report_is_whole_whatever_the_masks() -> None:
    total, other = SparseSum(FIRST), SparseSum(SECOND)
    for one, weight, g in ((total, 1, 2.0), (other, 3, 6.0)):
        one.add(Update(0, 1, weight, {"w": torch.ones(2)}, extra={"gradient": {"w": torch.full((4,), g)}}))
    total.merge(other)
    assert total.mean("gradient")["w"].tolist() == [5.0] * 4  # (1·2 + 3·6)/4
    assert total.mean()["w"].tolist() == [1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("form", ["the broadcast's, whole", "the broadcast's, kept"])
def test_a_stack_under_another_mask_merges_as_its_clients_would_one_by_one(form: Form) -> None:
    """b: (1·1 + 3·2 + 4·3)/8."""
    total, stacked = _under(FIRST, (1, [4.0, 2.0, 9.0, 9.0], 1.0)), SparseSum(SECOND, count_holders=True)
    rows = torch.tensor([[8.0, 0.0, 5.0, 0.0, 2.0], [0.0, 0.0, 12.0, 0.0, 3.0]])
    held = torch.stack([SECOND["w"]] * 2)
    stacked.add_stack(_stack(form, rows, held, [3, 4], SECOND["w"]), updates=2)
    total.merge(stacked)
    assert total.mean()["w"].tolist() == [(4 + 24) / 8, 2.0, (15 + 48) / 7, 0.0]
    assert total.mean()["b"].tolist() == [19 / 8]
    assert total.votes()["w"].tolist() == [8, 1, 7, 0]
    # Of six weights held, three by the first, one by one client, and one by two of three: (1·2 + 2·1)/((3 − 1)·6).
    assert total.apart() == {"w": pytest.approx(1 / 3)}


SENT: list[Masks] = [FIRST, SECOND, {"w": FIRST["w"].clone()}, {"w": torch.zeros(4, dtype=torch.bool)}, {}]
"""What clients may have been sent: the third is the first again, but another tensor, and the last is dense."""


@given(st.lists(st.tuples(st.sampled_from(SENT), clients), min_size=1, max_size=4), st.booleans())
def test_merging_sums_under_other_masks_is_adding_updates_with_masks_of_their_own(
    parts: list[tuple[Masks, list[Answer]]], from_the_right: bool
) -> None:
    one_by_one, sums = SparseSum(parts[0][0], count_holders=True), list[SparseSum]()
    for sent, answers in parts:
        sums.append(SparseSum(sent, count_holders=True))
        for weight, values, mask in answers:
            update = _answer(weight, values, values[0], sent, None if mask is None else {"w": torch.tensor(mask)})
            sums[-1].add(update)
            one_by_one.add(update if mask is not None else replace(update, masks=sent))
    merged = _merged(sums, from_the_right=from_the_right)
    old = {"w": torch.arange(4, dtype=torch.float32) - 9, "b": torch.zeros(1)}
    for name in ("w", "b"):
        assert _bits(merged.mean()[name]) == _bits(one_by_one.mean()[name])
        assert _bits(merged.mean(otherwise=old)[name]) == _bits(one_by_one.mean(otherwise=old)[name])
    for found, wanted in ((merged.held(), one_by_one.held()), (merged.votes(), one_by_one.votes())):
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], value) for name, value in wanted.items())
    assert (merged.updates, merged.weight) == (one_by_one.updates, one_by_one.weight)
    alike = all(sent is parts[0][0] for sent, _ in parts) and all(
        mask is None for _, some in parts for *_, mask in some
    )
    assert merged.apart() == ({} if alike else one_by_one.apart())


def _merged(sums: Sequence[SparseSum], *, from_the_right: bool) -> SparseSum:
    """All sums in one: the first takes in one after another, or each takes in what the next has taken in."""
    if from_the_right:
        for one, following in reversed(list(pairwise(sums))):
            one.merge(following)
    else:
        for other in sums[1:]:
            sums[0].merge(other)
    return sums[0]
