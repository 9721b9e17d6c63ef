"""Masks on the wire: what moved, and whole."""

from dataclasses import dataclass

from benchmarks.wire.entropy import choice_bits, mask_bits
from benchmarks.wire.updates import Exchange
from feddst.core import Masks
from feddst.wire.masks import encode_bitmap, encode_masks


@dataclass(frozen=True)
class DifferenceRow:
    """A readjusted mask against the one that was sent. `measured` and `entropy` are bytes."""

    network: str
    level: float
    alpha: float
    kept: int
    leaving: int
    entering: int
    code: str
    measured: int
    entropy: float

    @property
    def ratio(self) -> float:
        """How many times the entropy it takes."""
        return self.measured / self.entropy if self.entropy else 0.0


@dataclass(frozen=True)
class MaskRow:
    """A whole mask, in bytes: as a bitmap, as positions, and its entropy n·H."""

    network: str
    level: float
    weights: int
    kept: int
    bitmap: int
    positions: int
    entropy: float

    @property
    def ratio(self) -> float:
        """How many times the entropy the positions take."""
        return self.positions / self.entropy if self.entropy else 0.0


def difference_row(exchanged: Exchange, alpha: float) -> DifferenceRow:
    """How the mask of a readjusted update travels."""
    old, new = exchanged.sent, exchanged.update.masks or exchanged.sent
    moved = [_moved(old, new, name) for name in old]
    code, section = encode_masks(new, exchanged.layout, "difference", old)
    bits = sum(
        choice_bits(kept, leaving) + choice_bits(size - kept, entering) for size, kept, leaving, entering in moved
    )
    return DifferenceRow(
        exchanged.network,
        exchanged.level,
        alpha,
        kept=sum(kept for _, kept, _, _ in moved),
        leaving=sum(leaving for _, _, leaving, _ in moved),
        entering=sum(entering for _, _, _, entering in moved),
        code=code.name.lower(),
        measured=len(section),
        entropy=bits / 8,
    )


def mask_row(exchanged: Exchange) -> MaskRow:
    """How the broadcast's mask travels to a client that holds none."""
    masks, layout = exchanged.sent, exchanged.reference.layout
    _, positions = encode_masks(masks, layout, "positions", None)
    counts = [(mask.numel(), int(mask.sum())) for mask in masks.values()]
    return MaskRow(
        exchanged.network,
        exchanged.level,
        weights=sum(size for size, _ in counts),
        kept=sum(kept for _, kept in counts),
        bitmap=len(encode_bitmap(masks, layout)),
        positions=len(positions),
        entropy=sum(mask_bits(size, kept) for size, kept in counts) / 8,
    )


def _moved(old: Masks, new: Masks, name: str) -> tuple[int, int, int, int]:
    """Of a layer: its weights, how many the old mask keeps, how many leave and how many enter."""
    before, after = old[name], new[name]
    return before.numel(), int(before.sum()), int((before & ~after).sum()), int((after & ~before).sum())
