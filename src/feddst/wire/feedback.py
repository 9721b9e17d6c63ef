"""Error feedback: what a codec left out of an update, kept by the client and added to its next one.

A client that keeps e, and has trained from the broadcast θ to θ', sends Q(θ' − θ + e), so that θ + Q(…) arrives. It
keeps what is missing, e ← θ' − θ + e − Q(…), as bfloat16, for the weights that the update holds. When its masks
change, a weight that is still held keeps its e, a new one begins with 0, and the e of one that left is forgotten.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from feddst.core import ClientPlan, ClientState, Masks, Update, positions_of
from feddst.wire.layout import Layout
from feddst.wire.masks import decode_bitmap
from feddst.wire.reference import MaskFacts, Reference
from feddst.wire.values import cut

_NO_MASKS = torch.empty(0, dtype=torch.uint8)


@dataclass(frozen=True)
class Remainder:
    """How the remainder e is kept, for updates with these parameters under these masks.

    It is a row, bfloat16 [n], on any device: the values of every parameter in the layout's order, of a masked one only
    those that its mask keeps. The masks it was made under are kept with it, as a bitmap section.
    """

    layout: Layout
    facts: MaskFacts

    def read(self, state: ClientState) -> Tensor | None:
        """The row that a client keeps, realigned to these masks; None if it keeps none."""
        found = self.kept(state)
        if found is None:
            return None
        row, bitmap = found
        mine = self.facts.bitmap_row
        return row if bitmap is mine or torch.equal(bitmap, mine) else self._moved(row, bitmap)

    def kept(self, state: ClientState) -> tuple[Tensor, Tensor] | None:
        """The row that a client keeps, unchanged, and its bitmap, empty if there were no masks."""
        row = state.feedback.get(self._row)
        return None if row is None else (row, state.feedback.get(self._mask, _NO_MASKS))

    def written(self, state: ClientState, row: Tensor) -> ClientState:
        """A client's state, with this row in place of the one it kept."""
        if not self.layout.params:
            return state
        others = {name: value for name, value in state.feedback.items() if name not in (self._row, self._mask)}
        mine = self.facts.bitmap_row
        bitmap = {self._mask: mine} if len(mine) else {}
        return replace(state, feedback={**others, self._row: row, **bitmap})

    def added(self, update: Update, state: ClientState) -> Update:
        """An update plus its client's remainder."""
        row = self.read(state)
        if row is None:
            return update
        names = [one.name for one in self.layout.params]
        pieces = dict(zip(names, cut(row.float(), self.counts), strict=True))
        values = {name: update.params[name].float() for name in names}
        return replace(update, params={name: value + pieces[name].view_as(value) for name, value in values.items()})

    def left_out(self, update: Update, arrived: Update) -> Tensor:
        """The new row: an update minus what arrived of it."""
        lost = [update.params[one.name].float() - arrived.params[one.name].float() for one in self.layout.params]
        return torch.cat([torch.empty(0), *(value.reshape(-1) for value in lost)]).to(torch.bfloat16)

    @cached_property
    def _row(self) -> str:
        return f"{self.layout.fingerprint:016x}"

    @property
    def _mask(self) -> str:
        return f"{self._row} mask"

    @cached_property
    def counts(self) -> list[int]:
        """How many values each parameter has."""
        return [self.facts.active.get(one.name, one.size) for one in self.layout.params]

    def _moved(self, row: Tensor, bitmap: Tensor) -> Tensor:
        """A row made under other masks, realigned to these; clients that had the same share the indices."""
        held, known = bitmap.numpy().tobytes(), self.facts.realigned
        if held not in known:
            known[held] = self._source(held)
        return torch.cat([row, row.new_zeros(1)])[known[held]]

    def _source(self, bitmap: bytes) -> Tensor:
        """Each value's index in a row under the masks of this bitmap; the row's length if it was not held."""
        old = positions_of(decode_bitmap(bitmap, self.layout) or {})
        new = self.facts.on_cpu.positions
        counts = [len(old[one.name]) if one.name in old else one.size for one in self.layout.params]
        found: list[Tensor] = []
        for one, places in zip(self.layout.params, cut(torch.arange(sum(counts)), counts), strict=True):
            if one.name in old:
                places = torch.full((one.size,), sum(counts)).index_copy_(0, old[one.name], places)
            found.append(places[new[one.name]] if one.name in new else places)
        return torch.cat(found)


def remainder_of(reference: Reference, plan: ClientPlan, own: Masks | None = None) -> Remainder:
    """The remainder of updates to a broadcast, under its masks or a client's own."""
    layout = Layout(reference.answer_layout(plan).params)
    return Remainder(layout, reference.facts.under(layout) if own is None else MaskFacts(own, layout))
