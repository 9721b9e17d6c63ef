"""Masks as bytes: nothing, a bitmap, positions, or the difference to a mask that both ends hold.

A section is one stream of bits. Layers come in the order of the layout.

- `ABSENT`: no parameter is masked. `SAME`: the reference mask. Both are empty.
- `BITMAP`: one flag for each parameter, whether it has a mask; then one bit for each weight that does.
- `POSITIONS`: the same flags; for each mask the number of weights it keeps; then their positions as sets.
- `DIFFERENCE`: for each masked layer of the reference how many weights leave, and how many more enter than leave;
  then, as sets, which of the reference's weights leave, and which of the other weights enter.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from feddst.errors import WireError
from feddst.protocol import Masks
from feddst.wire.bits import (
    LONGEST_NUMBER,
    BitReader,
    Bits,
    Members,
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


class MaskCode(IntEnum):
    """How a payload's mask is written, as its header says."""

    ABSENT = 0
    SAME = 1
    BITMAP = 2
    POSITIONS = 3
    DIFFERENCE = 4


def encode_masks(masks: Masks, layout: Layout, style: MaskStyle, reference: Masks | None) -> tuple[MaskCode, bytes]:
    """The mask section for these masks; `reference` is what the other end holds, if anything."""
    fields = [field for field in layout.params if field.name in masks]
    if not fields:
        return MaskCode.ABSENT, b""
    new = {field.name: _flat(masks, field) for field in fields}
    if reference is not None and _own_layers(reference, layout).keys() == new.keys():
        old = {field.name: _flat(reference, field) for field in fields}
        if all(np.array_equal(new[name], old[name]) for name in new):
            return MaskCode.SAME, b""
        if style == "difference":
            whole = MaskCode.POSITIONS, pack(_positions(new, layout))
            moved = MaskCode.DIFFERENCE, pack(_difference(new, old))
            return min(moved, whole, key=lambda section: len(section[1]))
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
    """Nothing is known of how many weights a mask should keep."""


def decode_masks(
    code: MaskCode, data: memoryview, layout: Layout, reference: Masks | None, check: "Check"
) -> dict[str, torch.Tensor]:
    """The masks in a section. `check` is shown each layer's name and how many weights its mask would keep."""
    if code in (MaskCode.ABSENT, MaskCode.SAME):
        if len(data):
            raise WireError(f"a payload with mask code {code.name} has a mask section of {len(data)} bytes")
        return {} if code is MaskCode.ABSENT else _own_layers(_held(reference), layout)
    reader = BitReader(data)
    if code is MaskCode.DIFFERENCE:
        masks = _read_difference(reader, _own_layers(_held(reference), layout), layout, check)
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


def _layer_flags(masks: Mapping[str, Flat], layout: Layout) -> Bits:
    return np.array([field.name in masks for field in layout.params], dtype=np.uint8)


def _positions(masks: Mapping[str, Flat], layout: Layout) -> list[Bits]:
    sets = [(len(mask), np.flatnonzero(mask)) for mask in masks.values()]
    counts = [number(len(members)) for _, members in sets]
    return [_layer_flags(masks, layout), *counts, *write_sets(sets)]


def _difference(new: Mapping[str, Flat], old: Mapping[str, Flat]) -> list[Bits]:
    counts: list[Bits] = []
    sets: list[tuple[int, Members]] = []
    for name, before in old.items():
        leaving, entering = np.flatnonzero(~new[name][before]), np.flatnonzero(new[name][~before])
        counts += [number(len(leaving)), number(signed(len(entering) - len(leaving)))]
        active = int(before.sum())
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
        check(name, int(mask.sum()))
    return masks


def _read_positions(reader: BitReader, layout: Layout, check: Check) -> dict[str, Flat]:
    fields = _masked_fields(reader, layout)
    counts = [_within(field.name, reader.number(), field.size) for field in fields]
    for field, count in zip(fields, counts, strict=True):
        check(field.name, count)
    members = read_sets(reader, [(field.size, count) for field, count in zip(fields, counts, strict=True)])
    return {field.name: _mask(field.size, found) for field, found in zip(fields, members, strict=True)}


def _read_difference(reader: BitReader, reference: Masks, layout: Layout, check: Check) -> dict[str, Flat]:
    old = {field.name: _flat(reference, field) for field in layout.params if field.name in reference}
    if not old:
        raise WireError("the payload has the difference to a mask, and the model has none")
    sizes: list[tuple[int, int]] = []
    for name, before in old.items():
        active = int(before.sum())
        leaving = _within(name, reader.number(), active)
        entering = _within(name, leaving + unsigned(reader.number()), len(before) - active)
        check(name, active - leaving + entering)
        sizes += [(active, leaving), (len(before) - active, entering)]
    return _moved(old, read_sets(reader, sizes))


def _moved(old: Mapping[str, Flat], sets: Sequence[Members]) -> dict[str, Flat]:
    masks: dict[str, Flat] = {}
    for i, (name, before) in enumerate(old.items()):
        active = int(before.sum())
        mask = np.empty_like(before)
        mask[before] = ~_mask(active, sets[2 * i])
        mask[~before] = _mask(len(before) - active, sets[2 * i + 1])
        masks[name] = mask
    return masks


def _within(name: str, count: int, most: int) -> int:
    if not 0 <= count <= most:
        raise WireError(f"the mask section counts {count} weights of {name} where there are {most}")
    return count


def _mask(size: int, members: Members) -> Flat:
    mask = np.zeros(size, dtype=np.bool_)
    mask[members] = True
    return mask
