"""The sparse weighted average as a streaming sum.

θ[i] = Σ n·θ[i]·m[i] / Σ n·m[i] needs two running sums, whatever the number of clients. Floating-point sums
depend on their order; these are kept in fixed point, where addition is exact. So the result is the same, to
the last bit, in whichever order updates arrive and however partial sums are merged.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import ClassVar, Self

import torch
from torch import Tensor

from feddst.core.aggregator import Aggregator
from feddst.core.fixedpoint import (
    LIGHT_ROOM,
    LIGHT_UPDATES,
    ROOM,
    ExactSum,
    Parts,
    in_a_row,
    room_for,
    rooms_for,
    sum_in_parts,
    value_of,
)
from feddst.core.holders import Holders
from feddst.core.registry import register
from feddst.core.tensors import Masks, Positions, Tensors, positions_in, positions_of, spread
from feddst.core.update import Key, Place, Stack, Update
from feddst.errors import TrainingError

Form = tuple[tuple[Key, torch.Size, torch.dtype], ...]
"""The tensors of an update, in their order."""
StackForm = tuple[tuple[Key, Place], ...]
"""The tensors of a stack."""


@dataclass(frozen=True)
class Kind:
    """The shape and dtype of a whole tensor, and whether clients hold only a part of it."""

    shape: torch.Size
    dtype: torch.dtype
    masked: bool

    def rounded(self, mean: Tensor) -> Tensor:
        """A mean in the tensor's own number format."""
        return (mean if self.dtype.is_floating_point else mean.round()).to(self.dtype)


@dataclass
class Row:
    """The sum of updates of one form: all tensors in one row, each at its place.

    Masked tensors are `whole`, with 0 where no client holds a weight, or have only what the broadcast's masks keep.
    """

    total: ExactSum
    places: dict[Key, slice]
    weight: int = 0
    whole: bool = False
    _mean: Tensor | None = field(default=None, init=False)

    def add(self, values: Tensor, weight: int) -> None:
        """Add one update, its tensors in a row."""
        self.total.add_times(values, weight)
        self._grow(weight)

    def add_parts(self, parts: Parts, weight: int) -> None:
        """Add the sum of several updates."""
        self.total.add(parts)
        self._grow(weight)

    def mean(self, key: Key) -> Tensor:
        """The mean of one tensor, float64 [n]."""
        if self._mean is None:
            total = value_of(self.total.parts)
            # On a GPU, PyTorch divides by a plain number by multiplying by its reciprocal, which is off by a bit.
            self._mean = total / torch.full((), self.weight, dtype=total.dtype, device=total.device)
        return self._mean[self.places[key]]

    def parts(self, key: Key, at: Tensor | None) -> Parts:
        """The sum of one tensor; its mask keeps the weights at the flat indices `at`."""
        coarse, fine = (part[self.places[key]] for part in self.total.parts)
        return (coarse[at], fine[at]) if self.whole and at is not None else (coarse, fine)

    def _grow(self, weight: int) -> None:
        self.weight += weight
        self._mean = None


@dataclass
class Whole:
    """The sum of one whole tensor, and for each entry the weight n_c of its holders, int64 [n]."""

    total: ExactSum
    weights: Tensor

    def add(self, values: Tensor, weight: int, at: Tensor | None) -> None:
        """Add one update times its weight, [n]: everywhere, or at the flat indices `at`."""
        self.total.add_times(values, weight, at)
        self._weigh(weight, at)

    def add_parts(self, parts: Parts, weight: int, at: Tensor | None) -> None:
        """Add the sum of several updates."""
        self.total.add(parts, at)
        self._weigh(weight, at)

    def _weigh(self, weight: int, at: Tensor | None) -> None:
        if at is None:
            self.weights += weight
        else:
            self.weights.index_add_(0, at, torch.full_like(at, weight))

    def merge(self, other: "Whole") -> None:
        """Add another such sum."""
        self.total.add(other.total.parts)
        self.weights += other.weights


@register
class SparseSum(Aggregator):
    """Running sums over the updates of a round; `masks` are the broadcast's.

    `positions`, if known, are those of the weights that these masks keep. Updates with these masks are added row by
    row, those of clients with masks of their own tensor by tensor. With `count_holders` the clients that hold a weight
    are counted too: the sums have their n_c, not their number.
    """

    name: ClassVar[str] = "mean"

    def __init__(self, masks: Masks, positions: Positions | None = None, *, count_holders: bool = False) -> None:
        super().__init__(masks, positions, count_holders=count_holders)
        self._known = positions
        self._kinds: dict[Key, Kind] = {}
        self._rows: dict[Form | StackForm, Row] = {}
        self._wholes: dict[Key, Whole] = {}
        self._bound = 0
        self._wide = False
        self._own_masks = False
        self._holders = Holders(masks) if count_holders else None

    def add(self, update: Update) -> None:
        """Add one client's update."""
        groups: dict[str, Tensors] = {"params": update.params, "buffers": update.buffers, **update.extra}
        tensors = {(group, name): value for group, named in groups.items() for name, value in named.items()}
        values = in_a_row(tensors.values())
        self._grow(room_for(values, update.weight), 1)
        form = tuple((key, value.shape, value.dtype) for key, value in tensors.items())
        if update.masks is None:
            self._row(form, values.device).add(values, update.weight)
        else:
            self._add_wholes(form, values, update.weight, update.masks)
        if self._holders is not None:
            self._holders.add(update.masks)
        self.weight += update.weight

    def add_stack(self, stack: Stack, updates: int) -> None:
        """Add the updates of several clients at once: the same sums as one by one.

        `updates` is how many updates this completes, 0 if other tensors of theirs are to come.
        """
        self._grow(sum(rooms_for(stack.peaks, stack.weights)), updates)
        each, everybody = torch.tensor(stack.weights, device=stack.values.device), sum(stack.weights)
        parts = sum_in_parts(stack.values, each, wide=self._wide)
        for key, place in stack.places.items():
            self._learn(key, Kind(place.shape, place.dtype, place.masked))
        if stack.held is None:
            self._add_row(stack, parts, everybody)
        else:
            self._own_masks = True
            self._add_held(stack, parts, (each[:, None] * stack.held).sum(0), everybody)
        if self._holders is not None:
            self._holders.add_stack(stack)
        self.weight += everybody if updates else 0

    def merge(self, other: Self) -> None:
        """Add the sums of another part of the round's updates; both count holders, or neither does."""
        self._grow(other._bound, other.updates)
        for key, kind in other._kinds.items():
            self._learn(key, kind)
        if other.masks is self.masks:
            self._merge_alike(other)
        else:  # another broadcast's masks count as clients' own
            self._own_masks = True
            for key in other._kinds:
                whole = other._everything(key)
                self._whole(key, whole.total.device).merge(whole)
        if self._holders is not None:
            assert other._holders is not None
            self._holders.merge(other._holders)
        self.weight += other.weight

    def _merge_alike(self, other: Self) -> None:
        """Add the sums of updates that were sent the same masks."""
        for form, row in other._rows.items():
            if form not in self._rows:
                total = ExactSum(len(row.total.parts[0]), row.total.device, wide=self._wide)
                self._rows[form] = Row(total, row.places, whole=row.whole)
            self._rows[form].add_parts(row.total.parts, row.weight)
        for key, whole in other._wholes.items():
            self._whole(key, whole.total.device).merge(whole)
        self._own_masks |= other._own_masks

    def mean(self, group: str = "params", *, otherwise: Tensors | None = None) -> dict[str, Tensor]:
        """The mean of each entry over the clients that hold it; where none does, `otherwise` or 0.

        `group` is `params`, `buffers`, or the name of an extra such as `gradient`.
        """
        mine = [key for key in self._kinds if key[0] == group]
        return {key[1]: self._mean(key, None if otherwise is None else otherwise[key[1]]) for key in mine}

    def held(self) -> dict[str, Tensor]:
        """Which masked weights at least one client holds: the union of the clients' masks."""
        return {key[1]: self._held(key) for key, kind in self._kinds.items() if kind.masked}

    def votes(self) -> dict[str, Tensor]:
        """The weight n_c of the clients that hold each masked weight: int64, of the tensor's shape."""
        return {key[1]: self._votes(key).clone() for key, kind in self._kinds.items() if kind.masked}

    def apart(self) -> dict[str, float]:
        """By layer, how much clients' masks differ, as `Holders.apart` says; empty if holders were not counted."""
        return {} if self._holders is None else self._holders.apart()

    def _grow(self, room: int, updates: int) -> None:
        """Make room for what is about to be added."""
        if self._bound + room >= ROOM:
            raise TrainingError("the weights of this round's updates are too large to average")
        self._bound += room
        self.updates += updates
        if not self._wide and (self._bound >= LIGHT_ROOM or self.updates >= LIGHT_UPDATES):
            self._wide = True
            for total in [row.total for row in self._rows.values()] + [one.total for one in self._wholes.values()]:
                total.widen()

    def _row(self, form: Form, device: torch.device) -> Row:
        """The sum of updates of this form that have the broadcast's masks."""
        if form not in self._rows:
            self._note(form, self.masks)
            ends = [0, *accumulate(shape.numel() for _, shape, _ in form)]
            places = {key: slice(*place) for (key, _, _), place in zip(form, pairwise(ends), strict=True)}
            self._rows[form] = Row(ExactSum(ends[-1], device, wide=self._wide), places)
        return self._rows[form]

    def _add_row(self, stack: Stack, parts: Parts, weight: int) -> None:
        """Add the sum of updates with the broadcast's masks."""
        form = tuple(stack.places.items())
        if form in self._rows:
            self._rows[form].add_parts(parts, weight)
        else:
            places = {key: place.columns for key, place in form}
            whole = all(place.kept is None for _, place in form)
            self._rows[form] = Row(ExactSum.of(parts), places, weight, whole=whole)

    def _add_held(self, stack: Stack, parts: Parts, held: Tensor, everybody: int) -> None:
        """Add the sum of updates with masks of their own; `held` is the weight n_c of each entry's holders."""
        coarse, fine = parts
        for key, place in stack.places.items():
            at = place.columns
            weights = held[at] if place.masked else torch.full_like(held[at], everybody)
            whole = Whole(ExactSum.of((coarse[at], fine[at])), weights)
            if key in self._wholes:
                self._wholes[key].merge(whole)
            else:
                self._wholes[key] = whole

    def _whole(self, key: Key, device: torch.device) -> Whole:
        """The sum of a tensor over updates with masks of their own."""
        if key not in self._wholes:
            self._wholes[key] = self._empty(key, device)
        return self._wholes[key]

    def _empty(self, key: Key, device: torch.device) -> Whole:
        size = self._kinds[key].shape.numel()
        return Whole(ExactSum(size, device, wide=self._wide), torch.zeros(size, dtype=torch.int64, device=device))

    def _note(self, form: Form, masks: Masks) -> None:
        """Remember the kind of each new tensor."""
        for key, shape, dtype in form:
            masked = key[0] == "params" and key[1] in masks
            self._learn(key, Kind(masks[key[1]].shape if masked else shape, dtype, masked))

    def _learn(self, key: Key, kind: Kind) -> None:
        """Remember a tensor's kind: masked as soon as one client holds only a part of it."""
        if key not in self._kinds or (kind.masked and not self._kinds[key].masked):
            self._kinds[key] = kind

    def _add_wholes(self, form: Form, values: Tensor, weight: int, masks: Masks) -> None:
        self._own_masks = True
        self._note(form, masks)
        sizes = [shape.numel() for _, shape, _ in form]
        for (key, _, _), piece in zip(form, values.split_with_sizes(sizes), strict=True):
            at = positions_in(masks[key[1]]) if key[0] == "params" and key[1] in masks else None
            self._whole(key, piece.device).add(piece, weight, at)

    def _mean(self, key: Key, otherwise: Tensor | None) -> Tensor:
        kind, rows = self._kinds[key], self._rows_with(key)
        if len(rows) == 1 and key not in self._wholes:
            return self._mean_of(rows[0], key, otherwise)
        whole = self._everything(key)
        mean = kind.rounded(value_of(whole.total.parts) / whole.weights.clamp(min=1)).reshape(kind.shape)
        if otherwise is None:
            return mean
        return torch.where((whole.weights > 0).reshape(kind.shape), mean, otherwise.to(kind.dtype))

    def _mean_of(self, row: Row, key: Key, otherwise: Tensor | None) -> Tensor:
        """The mean of a tensor that is in only one row."""
        kind = self._kinds[key]
        mean, at = kind.rounded(row.mean(key)), None if row.whole else self._at(key)
        if at is not None:
            return spread(mean, at, kind.shape, otherwise)
        mean = mean.reshape(kind.shape)
        if not kind.masked or otherwise is None:
            return mean
        return torch.where(self.masks[key[1]], mean, otherwise.to(kind.dtype))

    def _held(self, key: Key) -> Tensor:
        if not self._own_masks:
            return self.masks[key[1]]
        return self._votes(key) > 0

    def _votes(self, key: Key) -> Tensor:
        return self._everything(key).weights.reshape(self._kinds[key].shape)

    def _everything(self, key: Key) -> Whole:
        """The sum of a tensor over all updates."""
        rows, own = self._rows_with(key), self._wholes.get(key)
        if own is not None and not rows:
            return own
        whole = self._empty(key, rows[0].total.device)
        if own is not None:
            whole.merge(own)
        for row in rows:
            at = self._at(key)
            whole.add_parts(row.parts(key, at), row.weight, at)
        return whole

    def _rows_with(self, key: Key) -> list[Row]:
        return [row for row in self._rows.values() if key in row.places]

    def _at(self, key: Key) -> Tensor | None:
        """Where the broadcast's masks keep entries of a tensor; None: everywhere."""
        return self._positions.get(key[1]) if key[0] == "params" else None

    @cached_property
    def _positions(self) -> Positions:
        return positions_of(self.masks) if self._known is None else self._known
