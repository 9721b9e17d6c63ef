"""The streaming sum: hand-computed means, and independence of order and grouping to the last bit."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from feddst.errors import TrainingError
from feddst.protocol import SparseSum, Update, packed, positions_of

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


weights32 = st.floats(-1e6, 1e6, width=32)
clients = st.lists(
    st.tuples(
        st.integers(1, 10_000),
        st.lists(weights32, min_size=4, max_size=4),
        st.lists(st.booleans(), min_size=4, max_size=4),
    ),
    min_size=1,
    max_size=8,
)


@given(clients, st.randoms(use_true_random=False), st.integers(0, 8))
def test_result_does_not_depend_on_order_or_merging(
    answers: list[tuple[int, list[float], list[bool]]], random: "object", cut: int
) -> None:
    updates = [update(i, n, w, mask, bias=w[0]) for i, (n, w, mask) in enumerate(answers)]
    in_order = _summed(updates)
    shuffled = list(updates)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    merged = SparseSum(MASK)
    merged.merge(_summed(shuffled[cut:]))
    merged.merge(_summed(shuffled[:cut]))
    for name, mean in in_order.mean().items():
        assert _bits(mean) == _bits(_summed(shuffled).mean()[name]) == _bits(merged.mean()[name])


@given(st.integers(1, 2**28), st.floats(-1e3, 1e3, width=32).filter(lambda v: v == 0 or abs(v) > 2.0**-36))
def test_the_mean_of_one_client_is_that_client(weight: int, value: float) -> None:
    total = SparseSum({})
    total.add(Update(client=0, round=1, weight=weight, params={"w": torch.tensor([value])}))
    assert total.mean()["w"].item() == value


@given(clients)
def test_mean_agrees_with_rational_arithmetic(answers: list[tuple[int, list[float], list[bool]]]) -> None:
    from fractions import Fraction

    total = _summed([update(i, n, w, mask) for i, (n, w, mask) in enumerate(answers)])
    for k in range(4):
        held = [(n, Fraction(w[k])) for n, w, mask in answers if mask[k]]
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
