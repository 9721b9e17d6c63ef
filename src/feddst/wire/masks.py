"""Masks as bytes: nothing, a bitmap, positions, or the difference to a mask that both ends hold.

A section is one stream of bits. Layers come in the order of the layout.

- `ABSENT`: no parameter is masked. `SAME`: the reference mask. Both are empty.
- `BITMAP`: one flag for each parameter, whether it has a mask; then one bit for each weight that does.
- `POSITIONS`: the same flags; for each mask the number of weights it keeps; then their positions as sets.
- `DIFFERENCE`: for each masked layer of the reference how many weights leave, and how many more enter than leave;
  then, as sets, which of the reference's weights leave, and which of the other weights enter.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from feddst.core import Masks, Positions, positions_of
from feddst.errors import WireError
from feddst.wire.bits import (
    LONGEST_NUMBER,
    BitReader,
    Bits,
    Members,
    fewest_bits,
    number,
    pack,
    read_sets,
    signed,
    unsigned,
    write_sets,
)
from feddst.wire.layout import Field, Layout

MaskStyle = Literal["difference", "positions", "bitmap"]
Flat = NDArray[np.bool_]
Kept = Mapping[str, Members]
"""For each layer the positions of the weights that its mask keeps."""


class MaskCode(IntEnum):
    """How a payload's mask is written, as its header says."""

    ABSENT = 0
    SAME = 1
    BITMAP = 2
    POSITIONS = 3
    DIFFERENCE = 4


def encode_masks(
    masks: Masks, layout: Layout, style: MaskStyle, reference: Masks | None, positions: Positions | None = None
) -> tuple[MaskCode, bytes]:
    """The mask section for these masks; `reference` is what the other end holds, if anything.

    `positions`, if known, are those of the reference's weights.
    """
    fields = [field for field in layout.params if field.name in masks]
    if not fields:
        return MaskCode.ABSENT, b""
    new = {field.name: _flat(masks, field) for field in fields}
    if reference is not None and _own_layers(reference, layout).keys() == new.keys():
        old = {field.name: _flat(reference, field) for field in fields}
        if all(np.array_equal(new[name], old[name]) for name in new):
            return MaskCode.SAME, b""
        if style == "difference":
            return _moved_or_whole(new, old, _kept(reference, positions), layout)
    if style == "bitmap":
        return MaskCode.BITMAP, encode_bitmap(masks, layout)
    return MaskCode.POSITIONS, pack(_positions(new, layout))


def encode_bitmap(masks: Masks, layout: Layout) -> bytes:
    """The section with one bit for each weight; empty if there are no masks."""
    flat = {field.name: _flat(masks, field) for field in layout.params if field.name in masks}
    return pack([_layer_flags(flat, layout), *(mask.view(np.uint8) for mask in flat.values())]) if flat else b""


def decode_bitmap(bitmap: bytes, layout: Layout) -> dict[str, torch.Tensor] | None:
    """The masks of a bitmap section that was written here; None for an empty one."""
    return decode_masks(MaskCode.BITMAP, memoryview(bitmap), layout, None, any_count) if bitmap else None


def any_count(layer: str, count: int) -> None:
    """A check that allows any number of weights."""


def decode_masks(
    code: MaskCode,
    data: memoryview,
    layout: Layout,
    reference: Masks | None,
    check: "Check",
    positions: Positions | None = None,
) -> dict[str, torch.Tensor]:
    """The masks in a section. `check` is shown each layer's name and how many weights its mask would keep.

    `positions`, if known, are those of the reference's weights.
    """
    if code in (MaskCode.ABSENT, MaskCode.SAME):
        if len(data):
            raise WireError(f"a payload with mask code {code.name} has a mask section of {len(data)} bytes")
        return {} if code is MaskCode.ABSENT else _own_layers(_held(reference), layout)
    reader = BitReader(data)
    if code is MaskCode.DIFFERENCE:
        old = _own_layers(_held(reference), layout)
        masks = _read_difference(reader, old, _kept(old, positions), layout, check)
    elif code is MaskCode.BITMAP:
        masks = _read_bitmap(reader, layout, check)
    else:
        masks = _read_positions(reader, layout, check)
    shapes = {field.name: field.shape for field in layout.params}
    return {name: torch.from_numpy(mask).view(shapes[name]) for name, mask in masks.items()}


Check = Callable[[str, int], None]
"""Called with a layer and the number of weights its mask would keep; raises `WireError` if that is not allowed."""


COUNT_BITS = 4 * LONGEST_NUMBER
"""A layer has at most two numbers, each twice as long in γ code as in binary."""


def most_mask_bytes(layout: Layout) -> int:
    """No mask section for this layout is larger: a flag for each tensor and its counts, and a bit for each weight."""
    return (len(layout.params) * (1 + COUNT_BITS) + layout.weights + 7) // 8


def _flat(masks: Masks, field: Field) -> Flat:
    mask = masks[field.name]
    if tuple(mask.shape) != field.shape:
        raise WireError(f"the mask of {field.name} has shape {tuple(mask.shape)}, the layer {field.shape}")
    flat: Flat = mask.reshape(-1).numpy()
    return flat


def _held(reference: Masks | None) -> Masks:
    if reference is None:
        raise WireError("the payload refers to a mask that is not held here")
    return reference


def _own_layers(masks: Masks, layout: Layout) -> dict[str, torch.Tensor]:
    return {field.name: masks[field.name] for field in layout.params if field.name in masks}


def _kept(masks: Masks, positions: Positions | None) -> Kept:
    """The positions of the weights masks keep, computed if not known."""
    return {name: at.numpy() for name, at in (positions_of(masks) if positions is None else positions).items()}


def _layer_flags(masks: Mapping[str, Flat], layout: Layout) -> Bits:
    return np.array([field.name in masks for field in layout.params], dtype=np.uint8)


def _positions(masks: Mapping[str, Flat], layout: Layout) -> list[Bits]:
    sets = [(len(mask), np.flatnonzero(mask)) for mask in masks.values()]
    counts = [number(len(members)) for _, members in sets]
    return [_layer_flags(masks, layout), *counts, *write_sets(sets)]


def _moved_or_whole(
    new: Mapping[str, Flat], old: Mapping[str, Flat], kept: Kept, layout: Layout
) -> tuple[MaskCode, bytes]:
    """The difference, or the positions where these take fewer bytes."""
    moved = pack(_difference(new, old, kept))
    if len(moved) > _fewest_bytes(new):
        whole = pack(_positions(new, layout))
        if len(whole) < len(moved):
            return MaskCode.POSITIONS, whole
    return MaskCode.DIFFERENCE, moved


def _fewest_bytes(masks: Mapping[str, Flat]) -> int:
    """No section with the positions of these masks is smaller."""
    return sum(fewest_bits(len(mask), int(np.count_nonzero(mask))) for mask in masks.values()) // 8


def _difference(new: Mapping[str, Flat], old: Mapping[str, Flat], kept: Kept) -> list[Bits]:
    counts: list[Bits] = []
    sets: list[tuple[int, Members]] = []
    for name, before in old.items():
        active = len(kept[name])
        moving = np.flatnonzero(before != new[name])
        rank = np.searchsorted(kept[name], moving)  # how many were kept before each
        leaves = before[moving]
        leaving, entering = rank[leaves], (moving - rank)[~leaves]
        counts += [number(len(leaving)), number(signed(len(entering) - len(leaving)))]
        sets += [(active, leaving), (len(before) - active, entering)]
    return [*counts, *write_sets(sets)]


def _masked_fields(reader: BitReader, layout: Layout) -> list[Field]:
    flags = reader.take(len(layout.params))
    fields = [field for field, flag in zip(layout.params, flags, strict=True) if flag]
    if not fields:
        raise WireError("the mask section names no layer")
    return fields


def _read_bitmap(reader: BitReader, layout: Layout, check: Check) -> dict[str, Flat]:
    masks = {field.name: reader.take(field.size).view(np.bool_).copy() for field in _masked_fields(reader, layout)}
    reader.finish()
    for name, mask in masks.items():
        check(name, int(np.count_nonzero(mask)))
    return masks


def _read_positions(reader: BitReader, layout: Layout, check: Check) -> dict[str, Flat]:
    fields = _masked_fields(reader, layout)
    counts = [_within(field.name, reader.number(), field.size) for field in fields]
    for field, count in zip(fields, counts, strict=True):
        check(field.name, count)
    members = read_sets(reader, [(field.size, count) for field, count in zip(fields, counts, strict=True)])
    return {field.name: _mask(field.size, found) for field, found in zip(fields, members, strict=True)}


def _read_difference(reader: BitReader, reference: Masks, kept: Kept, layout: Layout, check: Check) -> dict[str, Flat]:
    old = {field.name: _flat(reference, field) for field in layout.params if field.name in reference}
    if not old:
        raise WireError("the payload has the difference to a mask, and the model has none")
    sizes: list[tuple[int, int]] = []
    for name, before in old.items():
        active = len(kept[name])
        leaving = _within(name, reader.number(), active)
        entering = _within(name, leaving + unsigned(reader.number()), len(before) - active)
        check(name, active - leaving + entering)
        sizes += [(active, leaving), (len(before) - active, entering)]
    sets = read_sets(reader, sizes)
    moves = zip(old.items(), sets[::2], sets[1::2], strict=True)
    return {name: _moved(before, kept[name], leaving, entering) for (name, before), leaving, entering in moves}


def _moved(before: Flat, kept: Members, leaving: Members, entering: Members) -> Flat:
    """A mask after some of its weights, at positions `kept`, have left, and some of the others have entered.

    With little memory, as in `bits`: `entering` is overwritten, and 32 bits are enough for what the wire carries.
    """
    mask = before.copy()
    mask[kept[leaving]] = False
    others_before = np.arange(len(kept), dtype=np.int32)
    np.subtract(kept, others_before, out=others_before)
    entering += np.searchsorted(others_before, entering.astype(np.int32), side="right")
    mask[entering] = True
    return mask


def _within(name: str, count: int, most: int) -> int:
    if not 0 <= count <= most:
        raise WireError(f"the mask section counts {count} weights of {name} where there are {most}")
    return count


def _mask(size: int, members: Members) -> Flat:
    mask = np.zeros(size, dtype=np.bool_)
    mask[members] = True
    return mask
