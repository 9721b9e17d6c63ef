"""Clients that trained together and were sent the same, and what they hold."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from feddst.core import Masks, positions_of
from feddst.engines.stacked.columns import Columns
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.trainer import Trained, masks_of
from feddst.wire import BroadcastEncoder, ClientTask, Layout, Reference, WireConfig
from feddst.wire.codecs import codec_named
from feddst.wire.feedback import Remainder, remainder_of
from feddst.wire.payload import counts_of


@dataclass(frozen=True)
class Group:
    """Members of a share that hold the same weights: those at `places`.

    `columns` are the columns of the weights that they send, in the row of a model; `remainder` says how they keep what
    does not arrive.
    """

    places: range
    remainder: Remainder
    columns: Tensor

    @property
    def counts(self) -> Sequence[int]:
        """How many values of each parameter they send."""
        return self.remainder.counts


@dataclass(frozen=True)
class Share:
    """Clients that were sent the same: `rows` of `trained`, which holds all that trained together.

    index: `rows` as int64 [K], on the device.
    """

    trained: Trained
    rows: Sequence[int]
    index: Tensor
    columns: Columns

    @property
    def flat(self) -> Flat:
        """Where tensors lie."""
        return self.columns.flat

    @property
    def sent(self) -> Reference:
        """What they were sent."""
        return self.tasks[0].sent

    @property
    def wire(self) -> WireConfig:
        """How they answer."""
        return self.tasks[0].wire

    @property
    def encoder(self) -> BroadcastEncoder:
        """The encoder of their broadcast."""
        return self.tasks[0].encoder

    @cached_property
    def tasks(self) -> list[ClientTask]:
        """Their tasks."""
        return [self.trained.tasks[row] for row in self.rows]

    @cached_property
    def layout(self) -> Layout:
        """What each of them sends."""
        return self.sent.answer_layout(self.tasks[0].plan)

    @cached_property
    def value_bytes(self) -> int:
        """How many bytes a client's values take under the broadcast's masks."""
        return self.bytes_of(self.sent.active)

    def bytes_of(self, active: Mapping[str, int]) -> int:
        """How many bytes values take; active: the active weights of each masked layer."""
        return codec_named(self.wire.values, "wire.values").size(counts_of(self.layout, active))

    @cached_property
    def sparse(self) -> set[str]:
        """The names of the tensors that may be masked."""
        return {*self.sent.broadcast.masks, *self.tasks[0].plan.own_layers}

    @cached_property
    def sent_columns(self) -> Tensor:
        """The columns of the weights that they send under the broadcast's masks, int64 [n]."""
        layout = Layout(self.layout.params)
        facts = self.sent.facts.under(layout)
        return self.columns.under(facts.bitmap_row, layout, facts.positions)

    def of(self, values: Tensor) -> Tensor:
        """Their rows of a tensor [M, …], copied."""
        return values[self.index]

    def without(self, rows: Collection[int]) -> "Share":
        """Without these rows."""
        rows = [row for row in self.rows if row not in rows]
        return replace(self, rows=rows, index=torch.tensor(rows, device=self.index.device))

    @cached_property
    def groups(self) -> list[Group]:
        """Members that hold the same weights: all, or each alone where some have masks of their own."""
        changed = [self.trained.changed[row] for row in self.rows]
        if not any(changed):
            return [self._group(range(len(self.rows)))]
        own = [self.masks(row) if other else None for row, other in zip(self.rows, changed, strict=True)]
        return [self._group(range(place, place + 1), masks) for place, masks in enumerate(own)]

    def _group(self, places: range, own: Masks | None = None) -> Group:
        remainder = remainder_of(self.sent, self.tasks[0].plan, own)
        if own is None:
            return Group(places, remainder, self.sent_columns)
        positions = positions_of({name: mask.to(self.index.device) for name, mask in own.items()})
        return Group(places, remainder, self.columns.at(positions, remainder.layout))

    def masks(self, row: int) -> dict[str, Tensor]:
        """The masks of one of them, on the CPU."""
        return masks_of(self._held, self.flat, self._places[row], self.trained.tasks[row])

    @cached_property
    def _places(self) -> dict[int, int]:
        """Each row's place in `rows`."""
        return {row: place for place, row in enumerate(self.rows)}

    @cached_property
    def _held(self) -> Tensor:
        """All their masks, copied to the CPU at once."""
        return self.of(self.trained.stack.masks).cpu()
