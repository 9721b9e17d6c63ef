"""A broadcast as both ends hold it during a round: updates are encoded and decoded against it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from feddst.core import Broadcast, ClientPlan, Masks, Positions, Tensors, count_active, packed, positions_of
from feddst.errors import WireError
from feddst.wire.header import Header
from feddst.wire.history import NO_MASK, mask_name
from feddst.wire.layout import Layout, model_layout, update_layout
from feddst.wire.masks import MaskCode, MaskStyle, decode_bitmap, encode_bitmap, encode_masks


@dataclass(frozen=True)
class MaskFacts:
    """What follows from a model's masks alone, computed once while they stay the same.

    `known` are the positions of the weights they keep, if computed already.
    """

    masks: Masks
    layout: Layout
    known: Positions | None = None
    _sections: dict[bytes, tuple[MaskCode, bytes]] = field(default_factory=dict)
    realigned: dict[bytes, Tensor] = field(default_factory=dict)
    """By bitmap, where values come from that were kept under its masks: see `Remainder`."""
    _parts: dict[Layout, "MaskFacts"] = field(default_factory=dict)

    @cached_property
    def positions(self) -> Positions:
        """The positions of the weights they keep."""
        return positions_of(self.masks) if self.known is None else self.known

    @cached_property
    def active(self) -> Mapping[str, int]:
        """How many weights each of them keeps."""
        if self.known is not None:
            return {name: len(positions) for name, positions in self.known.items()}
        return count_active(self.masks)

    @property
    def on_cpu(self) -> "MaskFacts":
        """The same for the masks in CPU memory."""
        return self if all(mask.device.type == "cpu" for mask in self.masks.values()) else self._copy

    @cached_property
    def _copy(self) -> "MaskFacts":
        return MaskFacts({name: mask.cpu() for name, mask in self.masks.items()}, self.layout)

    @cached_property
    def bitmap(self) -> bytes:
        """The masks as a bitmap section."""
        return encode_bitmap(self.on_cpu.masks, self.layout)

    @cached_property
    def bitmap_row(self) -> Tensor:
        """The same as a tensor, uint8 [bytes], as clients keep it: those with the same masks share it."""
        return torch.from_numpy(np.frombuffer(self.bitmap, dtype=np.uint8).copy())

    def under(self, layout: Layout) -> "MaskFacts":
        """The same for payloads with only these parameters."""
        if layout.params == self.layout.params:
            return self
        if layout not in self._parts:
            self._parts[layout] = MaskFacts(self.masks, layout, self.positions)
        return self._parts[layout]

    def section_for(self, held: bytes, style: MaskStyle) -> tuple[MaskCode, bytes]:
        """The mask section for a client that holds the masks of this bitmap."""
        if held not in self._sections:
            known = decode_bitmap(held, self.layout)
            self._sections[held] = encode_masks(self.on_cpu.masks, self.layout, style, known)
        return self._sections[held]


@dataclass(frozen=True, eq=False)
class Reference:
    """A broadcast as clients decode it, with what follows from it computed once.

    `known` is what follows from its masks, if computed already.
    """

    broadcast: Broadcast
    known: MaskFacts | None = None

    @cached_property
    def facts(self) -> MaskFacts:
        """What follows from its masks."""
        return MaskFacts(self.broadcast.masks, self.layout) if self.known is None else self.known

    @cached_property
    def layout(self) -> Layout:
        """Its tensors."""
        if self.known is not None:
            return self.known.layout
        return model_layout(self.broadcast.params, self.broadcast.buffers)

    def answer_layout(self, plan: ClientPlan) -> Layout:
        """The layout of an update from a client with this plan."""
        key = (plan.train, plan.keep, plan.groups)
        if key not in self._answers:
            self._answers[key] = update_layout(self.broadcast, plan)
        return self._answers[key]

    @cached_property
    def _answers(self) -> dict[object, Layout]:
        return {}

    @property
    def bitmap(self) -> bytes:
        """Its masks as a bitmap section."""
        return self.facts.bitmap

    @cached_property
    def mask_name(self) -> int:
        """Its mask's name on the wire."""
        return mask_name(self.bitmap)

    @property
    def positions(self) -> Positions:
        """The positions of the weights its masks keep."""
        return self.facts.positions

    @property
    def active(self) -> Mapping[str, int]:
        """How many weights each of its masks keeps."""
        return self.facts.active

    @cached_property
    def values(self) -> Tensors:
        """Its parameters, packed."""
        return packed(self.broadcast.params, self.positions)

    @cached_property
    def norm(self) -> float:
        """The Euclidean norm of its parameters."""
        return math.sqrt(sum(float(value.double().square().sum()) for value in self.broadcast.params.values()))

    def values_under(self, positions: Positions) -> Tensors:
        """Its parameters packed under masks at these positions."""
        return self.values if positions is self.positions else packed(self.broadcast.params, positions)

    def on_cpu(self) -> "Reference":
        """The same in CPU memory."""
        sent = self.broadcast
        params = {name: value.cpu() for name, value in sent.params.items()}
        buffers = {name: value.cpu() for name, value in sent.buffers.items()}
        return Reference(Broadcast(sent.round, params, buffers, self.facts.on_cpu.masks), self.facts.on_cpu)


def refers(header: Header) -> bool:
    """Whether a payload's mask is encoded against one that its receiver holds."""
    return header.mask in (MaskCode.SAME, MaskCode.DIFFERENCE)


def check_reference(header: Header, held: int) -> None:
    """Raise unless the mask that a payload refers to has the name `held`."""
    if header.reference != (held if refers(header) else NO_MASK):
        raise WireError(f"the payload refers to mask {header.reference:08x}, here is {held:08x}")
