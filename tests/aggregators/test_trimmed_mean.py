"""The trimmed mean by hand, by properties, and in a round in which one client of ten is hostile."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import feddst
from feddst.aggregators import TrimmedMean
from feddst.core import AggregatorConfig, SparseSum, Tensors, Update, packed, positions_of
from feddst.data import Dataset, federate
from feddst.models import make_module
from feddst.options import updated
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent
from feddst.runtime.run import Run
from feddst.wire import ClientResult, ClientTask, encode_update

MASK = {"w": torch.tensor([True, True, True, False])}


def update(client: int, w: Sequence[float], mask: Sequence[bool] | None = None, weight: int = 1) -> Update:
    """Four values, of which the client holds what the mask keeps, and a bias as large as the first."""
    masks = None if mask is None else {"w": torch.tensor(mask)}
    params = {"w": torch.tensor(w, dtype=torch.float32), "b": torch.tensor(w[:1], dtype=torch.float32)}
    return Update(client, 1, weight, packed(params, positions_of(masks or MASK)), masks=masks)


def summed(updates: Sequence[Update], trim: float) -> TrimmedMean:
    total = TrimmedMean(MASK, trim=trim)
    for one in updates:
        total.add(one)
    return total


def scalars(*values: float, trim: float, weights: Sequence[int] = ()) -> float:
    """The trimmed mean of one dense parameter of one weight."""
    total = TrimmedMean({}, trim=trim)
    for client, value in enumerate(values):
        total.add(Update(client, 1, weights[client] if weights else 1, {"w": torch.tensor([value])}))
    return float(total.mean()["w"])


# By hand.


def test_the_largest_and_the_smallest_of_a_dense_parameter_are_left_out() -> None:
    # ⌊0.25·4⌋ = 1 at either end: (2 + 4)/2; ⌊0.25·8⌋ = 2: 3, 4, 5 and 6 are left.
    assert scalars(2.0, -50.0, 70.0, 4.0, trim=0.25) == 3.0
    assert scalars(8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 4.0, trim=0.25) == 4.5


def test_one_hostile_value_among_ten_is_gone() -> None:
    honest = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    # Nine honest values and a hostile one above or below: 2 to 9 are left, or 1 to 8.
    for hostile, left in ((1e9, 5.5), (-1e9, 4.5)):
        assert scalars(*honest, hostile, trim=0.1) == left
        assert abs(scalars(*honest, hostile, trim=0.0)) > 9e7


def test_what_is_left_is_averaged_by_its_weights() -> None:
    # 0 and 9 are left out with all that they weigh: (1·2 + 3·6)/4.
    assert scalars(9.0, 2.0, 6.0, 0.0, trim=0.25, weights=[1000, 1, 3, 1000]) == 5.0


def test_so_many_are_left_out_as_the_share_says_as_it_is_written() -> None:
    """⌊βk⌋ at either end of the values 0, 1, … of k clients, which leaves those between: in binary 0.29 · 100 < 29."""
    for trim, clients, cut in (("0.29", 100, 29), ("0.285", 200, 57), ("0.105", 600, 63), ("0.1", 9, 0)):
        assert int(Fraction(trim) * clients) == cut
        weights = [1] * (cut + 1) + [3] * (clients - cut - 1)  # so that one more or less at an end is seen
        left = list(range(cut, clients - cut))
        expected = sum(weights[value] * value for value in left) / sum(weights[value] for value in left)
        assert scalars(*map(float, range(clients)), trim=float(trim), weights=weights) == pytest.approx(expected)


@pytest.mark.parametrize("clients", [1, 2, 3, 4, 10])
def test_less_than_a_half_always_leaves_somebody(clients: int) -> None:
    """One of an odd number of clients, two of an even: the median."""
    middle = (clients - 1) / 2
    assert scalars(*map(float, range(clients)), trim=0.4999999999999999) == middle


def test_fewer_holders_than_one_in_a_share_are_averaged_plainly() -> None:
    assert scalars(1.0, 2.0, 9.0, trim=0.25) == 4.0
    assert scalars(1.0, trim=0.4) == 1.0


def test_each_weight_is_trimmed_by_how_many_hold_it() -> None:
    """Of five clients one has a mask of its own, without w1 and w2; β = 0.2.

    w0: all five, and one is left out at either end: (2 + 3 + 4)/3. w1: four, so nobody: (1 + 2 + 3 + 90)/4. w2: four,
    all 7. w3: one, 6. The bias, as large as w0, is trimmed as w0 is.
    """
    updates = [update(client, [value, one, 7.0, 0.0]) for client, value, one in ((0, 2, 1), (1, 3, 2), (2, 4, 3))]
    updates += [update(3, [-80.0, 90.0, 7.0, 0.0]), update(4, [80.0, 0.0, 0.0, 6.0], [True, False, False, True])]
    total = summed(updates, 0.2)
    assert total.mean()["w"].tolist() == [3.0, 24.0, 7.0, 6.0]
    assert total.mean()["b"].tolist() == [3.0]


def test_what_nobody_holds_is_what_it_was() -> None:
    total, old = summed([update(c, [c, 2.0, 3.0, 0.0]) for c in range(4)], 0.25), {"w": torch.full((4,), -8.0)}
    assert total.mean()["w"].tolist() == [1.5, 2.0, 3.0, 0.0]
    assert total.mean(otherwise={**old, "b": torch.zeros(1)})["w"].tolist() == [1.5, 2.0, 3.0, -8.0]


def test_what_clients_report_and_buffers_are_not_trimmed() -> None:
    total = TrimmedMean({}, trim=0.25)
    for client, value in enumerate((0.0, 0.0, 0.0, 8.0)):
        tensor = {"w": torch.tensor([value])}
        total.add(Update(client, 1, 1, tensor, tensor, extra={"gradient": tensor}))
    assert [float(total.mean(group)["w"]) for group in ("params", "buffers", "gradient")] == [0.0, 2.0, 2.0]


def test_the_share_is_an_option() -> None:
    total = TrimmedMean.begin(AggregatorConfig(kind="trimmed-mean", trim=0.25), {})
    usual = TrimmedMean({})
    for one in (total, usual):
        for client, value in enumerate((0.0, 2.0, 4.0, 90.0)):
            one.add(Update(client, 1, 1, {"w": torch.tensor([value])}))
    assert float(total.mean()["w"]) == 3.0
    assert float(usual.mean()["w"]) == 24.0  # a tenth of four is nobody


# Properties.

values32 = st.floats(-1e6, 1e6, width=32)
masks = st.none() | st.lists(st.booleans(), min_size=4, max_size=4)
Answer = tuple[int, list[float], list[bool] | None]
answers = st.lists(
    st.tuples(st.integers(1, 10_000), st.lists(values32, min_size=4, max_size=4), masks), min_size=1, max_size=8
)
shares = st.floats(0, 0.5, exclude_max=True)


def updates_of(found: Sequence[Answer]) -> list[Update]:
    return [update(client, w, mask, weight) for client, (weight, w, mask) in enumerate(found)]


def bits(value: Tensor) -> bytes:
    return value.numpy().tobytes()


@given(answers)
def test_nothing_trimmed_is_the_mean_to_rounding(found: list[Answer]) -> None:
    trimmed, mean = summed(updates_of(found), 0.0), SparseSum(MASK)
    for one in updates_of(found):
        mean.add(one)
    old = {"w": torch.arange(4.0), "b": torch.zeros(1)}
    for name, expected in mean.mean(otherwise=old).items():
        largest = max(abs(value) for _, w, _ in found for value in w)
        torch.testing.assert_close(
            trimmed.mean(otherwise=old)[name], expected, rtol=2.0**-22, atol=2.0**-46 * largest + 2.0**-60
        )


@given(answers, shares, st.randoms(use_true_random=False), st.integers(0, 8))
def test_neither_the_order_of_arrival_nor_parts_change_a_bit(
    found: list[Answer], trim: float, random: Any, cut: int
) -> None:
    updates = updates_of(found)
    in_order = summed(updates, trim).mean()
    random.shuffle(updates)
    merged = TrimmedMean(MASK, trim=trim)
    for part in (updates[cut:], updates[:cut]):
        merged.merge(summed(part, trim))
    shuffled = summed(updates, trim).mean()
    for name, mean in in_order.items():
        assert bits(mean) == bits(shuffled[name]) == bits(merged.mean()[name])


@st.composite
def attacks(draw: st.DrawFn) -> tuple[float, list[float], list[float]]:
    """A share to trim, honest values, and no more hostile ones than are left out at either end."""
    clients, trim = draw(st.integers(3, 14)), draw(st.floats(0.25, 0.5, exclude_max=True))
    hostile = draw(st.lists(st.floats(-(2.0**26), 2.0**26, width=32), max_size=int(Fraction(str(trim)) * clients)))
    return trim, draw(st.lists(values32, min_size=clients - len(hostile), max_size=clients - len(hostile))), hostile


@given(attacks(), st.integers(1, 10_000))
def test_few_hostile_values_cannot_move_a_weight_out_of_the_honest_ones_range(
    attack: tuple[float, list[float], list[float]], weight: int
) -> None:
    """Whatever they say that they weigh."""
    trim, honest, hostile = attack
    weights = [weight] * len(hostile) + [1] * len(honest)
    found = scalars(*hostile, *honest, trim=trim, weights=weights)
    room = 2.0**-23 * max(map(abs, honest))  # the mean is rounded
    assert min(honest) - room <= found <= max(honest) + room


# In a run.


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


@pytest.fixture
def data() -> Dataset:
    draws = torch.Generator().manual_seed(3)
    images, labels = torch.randn(160, 1, 4, 4, generator=draws), torch.arange(160) % 4
    return Dataset.from_arrays(train=(images[:120], labels[:120]), test=(images[120:], labels[120:]))


def config_of(**changes: Any) -> RunConfig:
    small = {
        "method": "feddst",
        "rounds": 3,
        "data.partition": "iid",
        "data.clients": 10,
        "data.images_per_class": 3,
        "cohort.size": 10,
        "local.epochs": 1,
        "sparsity.level": 0.5,
        "readjust.every": 2,
        "readjust.alpha": 0.3,
        "engine.workers": 1,
        "wire.max_change": 0,
    }
    return updated(RunConfig(), small | {name.replace("__", "."): value for name, value in changes.items()})


def answer(task: ClientTask, change: float) -> ClientResult:
    """What a client sends whose weights have all changed by so much."""
    held = packed(task.sent.broadcast.params, positions_of(task.sent.broadcast.masks))
    changed = {name: value + change for name, value in held.items()}
    update = Update(task.client, task.round, task.largest_weight, changed)
    return ClientResult(encode_update(update, task), loss=1.0)


@pytest.mark.parametrize(("kind", "resists"), [("trimmed-mean", True), ("mean", False)])
def test_a_hostile_client_of_ten_does_not_move_the_model(kind: str, resists: bool, data: Dataset) -> None:
    """Nine clients change their weights by 0.01 to 0.09, one by 1,000; 0.02 to 0.09 are left, or 0.055."""
    config = config_of(aggregator__kind=kind, aggregator__trim=0.1)
    run = Run(config, federate(config.data, 0, data), make_module(network, 0))
    before = run.state
    for place, task in enumerate(run.open_round()):
        assert run.round.take(place, answer(task, 0.01 * place if place else 1000.0))
    run.close_round()
    for name, value in run.state.params.items():
        kept = run.state.masks.get(name, torch.ones_like(value, dtype=torch.bool))
        moved = (value - before.params[name])[kept]
        expected = torch.full_like(moved, 0.055 if resists else 100.045)
        torch.testing.assert_close(moved, expected, rtol=0, atol=1e-5 if resists else 1e-2)


def weights_of(data: Dataset, **changes: Any) -> Tensors:
    return feddst.run(config_of(**changes), model=network, data=data, watcher=Silent()).model.state_dict()


def test_a_whole_run_with_nothing_trimmed_is_the_usual_one_to_rounding(data: Dataset) -> None:
    """FedDST's clients have masks of their own in the second round."""
    usual = weights_of(data)
    for trim, alike in ((0.0, True), (0.2, False)):
        found = weights_of(data, aggregator__kind="trimmed-mean", aggregator__trim=trim)
        apart = max(float((found[name] - value).abs().max()) for name, value in usual.items())
        assert (apart < 1e-5) == alike
