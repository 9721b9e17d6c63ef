"""A broadcast as both ends hold it during a round: what updates are written and read against."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from feddst.errors import WireError
from feddst.protocol import Broadcast, ClientWork, Positions, Tensors, packed, positions_of
from feddst.wire.header import Header
from feddst.wire.history import NO_MASK, mask_name
from feddst.wire.layout import Layout, model_layout, update_layout
from feddst.wire.masks import MaskCode, encode_bitmap


@dataclass(frozen=True)
class Reference:
    """A broadcast as its receivers decoded it, with what follows from it worked out once.

    `known` are the positions of its masks' weights, for whoever has them already.
    """

    broadcast: Broadcast
    known: Positions | None = None

    @cached_property
    def layout(self) -> Layout:
        """Its tensors."""
        return model_layout(self.broadcast.params, self.broadcast.buffers)

    def answer_layout(self, work: ClientWork) -> Layout:
        """The tensors of what a client with these orders sends back."""
        key = (work.train, work.keep, work.report)
        if key not in self._answers:
            self._answers[key] = update_layout(self.broadcast, work)
        return self._answers[key]

    @cached_property
    def _answers(self) -> dict[object, Layout]:
        return {}

    @cached_property
    def bitmap(self) -> bytes:
        """Its masks as a bitmap section."""
        return encode_bitmap(self.broadcast.masks, self.layout)

    @cached_property
    def mask_name(self) -> int:
        """What its mask is called on the wire."""
        return mask_name(self.bitmap)

    @cached_property
    def positions(self) -> Positions:
        """Where the weights of its masks are."""
        return positions_of(self.broadcast.masks) if self.known is None else self.known

    @cached_property
    def active(self) -> Mapping[str, int]:
        """How many weights each of its masks keeps."""
        return {name: len(positions) for name, positions in self.positions.items()}

    @cached_property
    def values(self) -> Tensors:
        """Its parameters, packed."""
        return packed(self.broadcast.params, self.positions)

    def values_under(self, positions: Positions) -> Tensors:
        """Its parameters packed under masks at these positions."""
        return self.values if positions is self.positions else packed(self.broadcast.params, positions)


def refers(header: Header) -> bool:
    """Whether a payload's mask is told by another one, which its receiver holds."""
    return header.mask in (MaskCode.SAME, MaskCode.DIFFERENCE)


def check_reference(header: Header, held: int) -> None:
    """Raise unless the mask that a payload refers to is the one of this name."""
    if header.reference != (held if refers(header) else NO_MASK):
        raise WireError(f"the payload refers to mask {header.reference:08x}, here is {held:08x}")
