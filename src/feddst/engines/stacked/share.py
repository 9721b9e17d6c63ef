"""The members of one cohort among those who trained together, and what they hold."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from feddst.core import Masks, positions_of
from feddst.engines.base import Cohort
from feddst.engines.stacked.columns import Columns
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.slots import Seat
from feddst.engines.stacked.trainer import Trained, masks_of
from feddst.wire import Layout
from feddst.wire.codecs import codec_named
from feddst.wire.feedback import Remainder, remainder_of
from feddst.wire.payload import counts_of


@dataclass(frozen=True)
class Group:
    """Members of a share who hold the same weights: which of them, from first to last.

    `columns` are where in the row of a model the weights are that they send; `remainder` is how they keep what does not
    arrive of them.
    """

    places: range
    remainder: Remainder
    columns: Tensor

    @property
    def counts(self) -> Sequence[int]:
        """How many values each parameter has that they send."""
        return self.remainder.counts


@dataclass(frozen=True)
class Share:
    """The members of one cohort among those who trained together: `rows` of `trained` are theirs.

    index: the same, int64 [K], on the device.
    """

    cohort: Cohort
    trained: Trained
    rows: Sequence[int]
    index: Tensor
    columns: Columns

    @property
    def flat(self) -> Flat:
        """Where tensors lie."""
        return self.columns.flat

    @cached_property
    def seats(self) -> list[Seat]:
        """Whose they are."""
        return [self.trained.seats[row] for row in self.rows]

    @cached_property
    def layout(self) -> Layout:
        """What each of them sends."""
        return self.cohort.reference.answer_layout(self.seats[0].plan)

    @cached_property
    def value_bytes(self) -> int:
        """How many bytes the values of one who holds the broadcast's masks take."""
        return self.bytes_of(self.cohort.reference.active)

    def bytes_of(self, active: Mapping[str, int]) -> int:
        """How many bytes values take, with so many active weights in masked layers."""
        return codec_named(self.cohort.wire.values, "wire.values").size(counts_of(self.layout, active))

    @cached_property
    def sparse(self) -> set[str]:
        """The names of the tensors of which they may hold only a part."""
        return {*self.cohort.reference.broadcast.masks, *self.seats[0].plan.own_layers}

    @cached_property
    def sent(self) -> Tensor:
        """In which columns the weights are that they send if they hold the broadcast's masks, int64 [n]."""
        layout = Layout(self.layout.params)
        facts = self.cohort.reference.facts.under(layout)
        return self.columns.under(facts.bitmap_row, layout, facts.positions)

    def of(self, values: Tensor) -> Tensor:
        """Their rows of a tensor [M, …], copied."""
        return values[self.index]

    def without(self, places: Collection[int]) -> "Share":
        """Those of them whose places among the cohort's members are others."""
        rows = [row for row, seat in zip(self.rows, self.seats, strict=True) if seat.place not in places]
        return replace(self, rows=rows, index=torch.tensor(rows, device=self.index.device))

    @cached_property
    def groups(self) -> list[Group]:
        """Those who hold the same weights: all of them, or each alone where some have masks of their own."""
        changed = [self.trained.changed[row] for row in self.rows]
        if not any(changed):
            return [self._group(range(len(self.rows)))]
        own = [self.masks(row) if other else None for row, other in zip(self.rows, changed, strict=True)]
        return [self._group(range(place, place + 1), masks) for place, masks in enumerate(own)]

    def _group(self, places: range, own: Masks | None = None) -> Group:
        remainder = remainder_of(self.cohort.reference, self.seats[0].plan, own)
        if own is None:
            return Group(places, remainder, self.sent)
        positions = positions_of({name: mask.to(self.index.device) for name, mask in own.items()})
        return Group(places, remainder, self.columns.at(positions, remainder.layout))

    def masks(self, row: int) -> dict[str, Tensor]:
        """The masks of one of them, on the CPU."""
        return masks_of(self._held, self.flat, self._places[row], self.trained.seats[row])

    @cached_property
    def _places(self) -> dict[int, int]:
        """Where each row is among theirs."""
        return {row: place for place, row in enumerate(self.rows)}

    @cached_property
    def _held(self) -> Tensor:
        """All their masks, brought to the CPU in one go."""
        return self.of(self.trained.stage.masks).cpu()
