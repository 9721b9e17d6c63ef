"""What aggregators get that look at all values of a weight, with one that keeps the largest: it is easy to check."""

from collections.abc import Callable, Sequence
from itertools import permutations

import pytest
import torch
from torch import Tensor

from feddst.aggregators import CoordinateWise, coordinate_wise
from feddst.core import Masks, Update, packed, positions_of
from feddst.errors import TrainingError

MASK = {"w": torch.tensor([[True, True], [True, False]])}
NAN = float("nan")


class Largest(CoordinateWise):
    """The largest value of each weight; not a number where nobody holds it."""

    def combine(self, values: Tensor, held: Tensor, weights: Tensor) -> Tensor:
        assert (values.dtype, weights.dtype, held.dtype) == (torch.float64, torch.float64, torch.bool)
        assert values.shape == held.shape == (len(weights), values.shape[1])
        assert not values[~held].any()
        return torch.where(held.any(0), values.masked_fill(~held, -torch.inf).amax(0), NAN)


def update(client: int, w: Sequence[float], b: float, mask: Sequence[bool] | None = None) -> Update:
    """One with a weight of its number, and with masks of its own if there is a mask."""
    masks = None if mask is None else {"w": torch.tensor(mask).view(2, 2)}
    params = {"w": torch.tensor(w).view(2, 2), "b": torch.tensor([b])}
    return Update(client, 1, client, packed(params, positions_of(masks or MASK)), masks=masks)


def summed(updates: Sequence[Update], masks: Masks = MASK) -> Largest:
    total = Largest(masks)
    for one in updates:
        total.add(one)
    return total


def three() -> list[Update]:
    """Who holds what: w0 1, 2 and 3; w1 1 and 2; w2 1 and 2; w3, which nobody was sent, 3. All hold b."""
    return [
        update(1, [1.0, -2.0, 3.0, 0.0], b=-4.0),
        update(2, [2.0, -1.0, -3.0, 0.0], b=-5.0),
        update(3, [-9.0, 0.0, 0.0, -7.0], b=-6.0, mask=[True, False, False, True]),
    ]


def test_each_weight_is_made_of_the_values_of_those_who_hold_it() -> None:
    total = summed(three())
    assert total.mean()["w"].tolist() == [[2.0, -1.0], [3.0, -7.0]]
    assert total.mean()["b"].tolist() == [-4.0]
    assert total.mean()["w"].dtype == torch.float32
    # What is counted is as in the mean: the n_c are 1, 2 and 3.
    assert total.votes()["w"].tolist() == [[6, 3], [3, 3]]
    assert total.held()["w"].tolist() == [[True, True], [True, True]]
    assert (total.updates, total.weight) == (3, 6)


def test_what_nobody_holds_is_what_it_was_or_0() -> None:
    total, old = summed(three()[:2]), {"w": torch.full((2, 2), 8.0), "b": torch.full((1,), 8.0)}
    assert total.mean()["w"].tolist() == [[2.0, -1.0], [3.0, 0.0]]
    assert total.mean(otherwise=old)["w"].tolist() == [[2.0, -1.0], [3.0, 8.0]]
    assert total.mean(otherwise=old)["b"].tolist() == [-4.0]


def test_without_masks_everything_is_held_by_everybody() -> None:
    updates = [Update(client, 1, 1, {"w": torch.tensor([[-1.0, client]])}) for client in (5, 6)]
    assert summed(updates, {}).mean()["w"].tolist() == [[-1.0, 6.0]]


def test_a_parameter_that_some_do_not_send_is_made_of_what_the_others_send() -> None:
    short = Update(4, 1, 4, {"b": torch.tensor([-1.0])})
    total = summed([*three(), short])
    assert total.mean()["w"].tolist() == [[2.0, -1.0], [3.0, -7.0]]
    assert total.mean()["b"].tolist() == [-1.0]


def test_buffers_and_reports_are_averaged_as_ever() -> None:
    total = summed(
        [
            Update(c, 1, c, {}, {"seen": torch.tensor([v])}, extra={"gradient": {"w": torch.tensor([2 * v])}})
            for c, v in ((1, 0.0), (3, 4.0))
        ],
        {},
    )
    assert total.mean("buffers")["seen"].tolist() == [3.0]  # (1·0 + 3·4)/4
    assert total.mean("gradient")["w"].tolist() == [6.0]
    assert total.mean() == {}


class First(CoordinateWise):
    """The value of the client of the lowest number, which shows in which order they are."""

    def combine(self, values: Tensor, held: Tensor, weights: Tensor) -> Tensor:
        assert weights.tolist() == [1.0, 2.0, 3.0]
        return values[0]


def test_clients_are_in_the_order_of_their_numbers_whatever_came_first() -> None:
    for updates in permutations(three()):
        total = First(MASK)
        for one in updates:
            total.add(one)
        assert total.mean()["w"].tolist() == [[1.0, -2.0], [3.0, 0.0]]


@pytest.mark.parametrize("cut", range(4))
@pytest.mark.parametrize("backwards", [False, True])
def test_parts_merge_to_what_one_has(cut: int, backwards: bool) -> None:
    parts = [three()[:cut], three()[cut:]]
    total = Largest(MASK)
    for part in reversed(parts) if backwards else parts:
        total.merge(summed(part))
    assert total.mean()["w"].tolist() == [[2.0, -1.0], [3.0, -7.0]]
    assert (total.updates, total.weight) == (3, 6)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_parts_of_clients_that_were_sent_other_masks_keep_those(order: Sequence[int]) -> None:
    """w0 and w3 are held by the second part's client alone, w1 and w2 by the first's."""
    first, second = ({"w": torch.tensor(mask).view(2, 2)} for mask in ([0, 1, 1, 0], [1, 0, 0, 1]))
    masks = [{"w": first["w"].bool()}, {"w": second["w"].bool()}]
    values = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])]
    parts = [summed([Update(c, 1, 1, {"w": values[c]})], masks[c]) for c in (0, 1)]
    total, other = (parts[place] for place in order)
    total.merge(other)
    assert total.mean()["w"].tolist() == [[3.0, 1.0], [2.0, 4.0]]
    assert total.held()["w"].all()


@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
def test_many_weights_are_looked_at_piece_by_piece(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinate_wise, "_AT_ONCE", at_once)
    widths: list[int] = []

    def noted(self: Largest, values: Tensor, held: Tensor, weights: Tensor) -> Tensor:
        widths.append(values.shape[1])
        return combine(self, values, held, weights)

    combine: Callable[..., Tensor] = Largest.combine
    monkeypatch.setattr(Largest, "combine", noted)
    assert summed(three()).mean()["w"].tolist() == [[2.0, -1.0], [3.0, -7.0]]
    assert max(widths) * 3 <= max(at_once, 3)
    assert sum(widths) == 5


def test_an_update_that_cannot_be_added_up_is_not_held() -> None:
    total = summed(three()[:1])
    with pytest.raises(TrainingError, match="too large to average"):
        total.add(update(2, [NAN, 0.0, 0.0, 0.0], b=0.0))
    assert total.mean()["w"].tolist() == [[1.0, -2.0], [3.0, 0.0]]
