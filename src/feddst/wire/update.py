"""Updates: from a client's tensors to bytes, and from untrusted bytes to a checked update."""

import math
from collections.abc import Iterable, Mapping
from functools import partial

import torch
from torch import Tensor

from feddst.core import ClientPlan, MaskBounds, Masks, Tensors, Update, count_active, generator, positions_of
from feddst.core.fixedpoint import ROOM
from feddst.core.tensors import movement
from feddst.errors import ExcessError, WireError
from feddst.wire.bits import most_bits_needed
from feddst.wire.codecs import codec_coded, codec_named
from feddst.wire.config import WireConfig
from feddst.wire.header import Header, Kind
from feddst.wire.history import NO_MASK
from feddst.wire.layout import Layout
from feddst.wire.masks import COUNT_BITS, MaskCode, decode_masks, encode_masks, most_mask_bytes
from feddst.wire.payload import (
    Sections,
    counts_of,
    join,
    payload_size,
    read_raw,
    read_values,
    refuse_large,
    split,
    write_raw,
    write_values,
)
from feddst.wire.reference import Reference, check_reference
from feddst.wire.task import ClientTask

LARGEST_WEIGHT = 2**32 - 1
"""The largest possible n_c: it has four bytes in the header."""
LARGEST_TERM = ROOM / 128
"""Bound on n_c·|θ| in one update: the sums have room for 128 of that size."""


def answer_layout(task: ClientTask) -> Layout:
    """The layout of a client's update."""
    return task.sent.answer_layout(task.plan)


def check_masks(task: ClientTask, masks: Masks) -> None:
    """Raise if more weights of a layer left or entered than the plan allows."""
    for layer, (entered, left) in movement(task.sent.broadcast.masks, masks).items():
        bounds = task.plan.mask_bounds(layer, task.sent.active.get(layer))
        _check_exchange(layer, entered, left, bounds or MaskBounds(0, 0, 0, 0))


def check_change(task: ClientTask, params: Tensors, masks: Masks | None) -> None:
    """Raise if packed weights, under `masks` or the broadcast's, are too far from the broadcast."""
    sent, times = task.sent.norm, task.wire.max_change
    most = times * max(sent, 1.0) if times else math.inf
    if norm_of(params.values()) + sent <= most:  # then so is their difference's norm
        return
    change = norm_of(
        value.float().reshape(-1) - _before(task.sent, name, masks).reshape(-1) for name, value in params.items()
    )
    refuse_far(change, most)


def check_count(task: ClientTask, layer: str, count: int) -> None:
    """Raise unless a client's mask may keep `count` weights of a layer."""
    active = task.sent.active.get(layer)
    bounds = task.plan.mask_bounds(layer, active)
    if bounds is None:
        why = "comes with a mask, but is dense" if active is None else _UNASKED
        raise WireError(f"{layer} {why}")
    if bounds.most is None and count < bounds.least:
        raise WireError(f"the mask of {layer} keeps {count} weights, at least {bounds.least} must stay")
    if bounds.most is not None and not bounds.least <= count <= bounds.most:
        raise WireError(f"the mask of {layer} keeps {count} weights, its budget is {bounds.most}")


_UNASKED = "comes with a mask of its own, which nobody asked for"


def _check_exchange(layer: str, entered: int, left: int, bounds: MaskBounds) -> None:
    """Raise if more weights of a layer entered or left than allowed."""
    most_out, most_in = bounds.leaving, bounds.entering
    if (most_out, most_in) == (0, 0) and (entered or left):
        raise WireError(f"{layer} {_UNASKED}")
    if (most_out is not None and left > most_out) or (most_in is not None and entered > most_in):
        raise WireError(
            f"of {layer} {left} weights left and {entered} entered, at most {most_out} and {most_in} were to"
        )


def norm_of(tensors: Iterable[Tensor]) -> float:
    """The Euclidean norm of all values together; infinite or not a number if that of a tensor is."""
    rows = [value.detach().reshape(-1).float() for value in tensors]
    return math.sqrt(sum(float(row @ row) for row in rows))


def refuse_far(change: float, most: float) -> None:
    """Raise unless a change's norm is at most `most`."""
    if not change <= most:
        raise ExcessError(
            f"its weights are {change:.3g} away from those that were sent, at most {most:.3g} allowed (wire.max_change)"
        )


def encode_update(update: Update, task: ClientTask) -> bytes:
    """The payload that carries an update to the server."""
    reference, wire = task.sent, task.wire
    layout, codec = answer_layout(task), codec_named(wire.values, "wire.values")
    code, mask = MaskCode.SAME, b""
    if update.masks is not None and any(field.name in update.masks for field in layout.params):
        code, mask = encode_masks(update.masks, layout, wire.mask, reference.broadcast.masks, reference.positions)
    changes = _relative(update, reference) if codec.relative else update.params
    groups = {"params": changes, **update.extra}
    tensors = [groups[field.group][field.name].reshape(-1) for field in layout.coded]
    draws = generator(task.seed, "update rounding", task.round, task.client)
    packing, values = write_values(codec, tensors, draws, deflate=wire.packing == "deflate")
    header = Header(
        kind=Kind.UPDATE,
        mask=code,
        values=codec.code,
        packing=packing,
        round=update.round,
        weight=update.weight,
        reference=reference.mask_name if code in (MaskCode.SAME, MaskCode.DIFFERENCE) else NO_MASK,
        fingerprint=layout.fingerprint,
        mask_bytes=len(mask),
        value_bytes=len(values),
    )
    return join(header, mask, write_raw(layout.buffers, update.buffers), values)


def decode_update(payload: bytes | memoryview, task: ClientTask) -> Update:
    """The update in an untrusted answer to a task; raises `WireError`, and nothing else, if it is not valid."""
    layout, reference = answer_layout(task), task.sent
    sent = reference.broadcast
    if len(payload) > (most := largest_update(task)):
        raise WireError(f"the update has {len(payload)} bytes, the largest possible {most}")
    sections = split(payload, layout, Kind.UPDATE)
    header = sections.header
    if header.values != codec_named(task.wire.values, "wire.values").code:
        raise WireError(f"the update's values have codec {header.values}, asked for was {task.wire.values}")
    if header.round != sent.round:
        raise WireError(f"the update is for round {header.round}, this is round {sent.round}")
    if not 1 <= header.weight <= task.largest_weight:
        raise WireError(f"the update claims weight {header.weight}, allowed is 1 to {task.largest_weight}")
    if header.mask is MaskCode.ABSENT:
        raise WireError("an update must have a mask code other than ABSENT")
    check_reference(header, reference.mask_name)
    masks = None
    if header.mask is not MaskCode.SAME:
        positions, allowed = reference.positions, partial(check_count, task)
        own = decode_masks(header.mask, sections.mask, layout, sent.masks, allowed, positions)
        masks = _all_layers(own, sent.masks)
        check_masks(task, masks)
    elif sections.mask:
        raise WireError("an update with the mask it was sent has a mask section")
    groups = _groups(sections, layout, reference, masks)
    named = {f"{name} of {group}": value for group, tensors in groups.items() for name, value in tensors.items()}
    refuse_large(named, LARGEST_TERM / header.weight)
    check_change(task, groups["params"], masks)
    _refuse_impossible(groups, task.plan)
    return Update(
        client=task.client,
        round=header.round,
        weight=header.weight,
        params=groups["params"],
        buffers=groups["buffers"],
        masks=masks,
        extra={group: groups[group] for group in layout.reports},
    )


def largest_update(task: ClientTask) -> int:
    """The most bytes that an update can have."""
    layout, active, wire = answer_layout(task), task.sent.active, task.wire
    masked = [field for field in layout.params if field.name in active or field.name in task.plan.own_layers]
    bounds = {field.name: task.plan.mask_bounds(field.name, active.get(field.name)) for field in masked}
    moved = {name: found for name, found in bounds.items() if found is not None}
    most = {name: found.most for name, found in moved.items() if found.most is not None}
    counts = [
        max(count, most.get(field.name, 0)) if field.group == "params" else count
        for field, count in zip(layout.coded, counts_of(layout, active), strict=True)
    ]
    mask_bytes = _largest_mask(layout, active, moved, wire) if moved else 0
    return payload_size(layout, mask_bytes, codec_named(wire.values, "wire.values").size(counts))


def _largest_mask(
    layout: Layout, active_in: Mapping[str, int], moved: Mapping[str, MaskBounds], wire: WireConfig
) -> int:
    if wire.mask != "difference" or any(None in (one.leaving, one.entering) for one in moved.values()):
        return most_mask_bytes(layout)
    bits = 0
    for field in layout.params:
        if field.name in active_in:
            active = active_in[field.name]
            bounds = moved.get(field.name, MaskBounds(active, active, 0, 0))
            moving, growing = min(bounds.leaving or 0, active), min(bounds.entering or 0, field.size - active)
            bits += COUNT_BITS + most_bits_needed(active, moving) + most_bits_needed(field.size - active, growing)
    return (bits + 7) // 8


def _relative(update: Update, reference: Reference) -> dict[str, Tensor]:
    positions = reference.positions if update.masks is None else positions_of(update.masks)
    before = reference.values_under(positions)
    return {name: value.float() - before[name].float() for name, value in update.params.items()}


def _groups(
    sections: Sections, layout: Layout, reference: Reference, masks: Masks | None
) -> dict[str, dict[str, Tensor]]:
    """All tensors of an update by group."""
    active = reference.active if masks is None else count_active(masks)
    relative = codec_coded(sections.header.values).relative
    groups: dict[str, dict[str, Tensor]] = {"params": {}, **{group: {} for group in layout.reports}}
    for field, value in zip(layout.coded, read_values(sections, counts_of(layout, active)), strict=True):
        if field.group != "params":
            groups[field.group][field.name] = value.reshape(field.shape)
            continue
        if relative:
            value += _before(reference, field.name, masks).reshape(-1)
        groups["params"][field.name] = (value if field.name in active else value.reshape(field.shape)).to(field.dtype)
    return groups | {"buffers": read_raw(sections.buffers, layout.buffers)}


def _refuse_impossible(groups: Mapping[str, Mapping[str, Tensor]], plan: ClientPlan) -> None:
    """Raise at impossible numbers: a variance below 0, or a report that its step refuses."""
    for name, value in groups["buffers"].items():
        if name.endswith("running_var") and (value < 0).any():
            raise WireError(f"{name} of buffers holds {float(value.min()):g}, which cannot be negative")
    for step in plan.steps:
        for group in step.groups:
            for name, value in groups[group].items():
                step.check_report(group, name, value)


def _before(reference: Reference, name: str, masks: Masks | None) -> Tensor:
    """A parameter as sent, of a masked one only the weights it keeps; needs no list of their positions."""
    if masks is None or name not in masks:
        return reference.values[name]
    return torch.from_numpy(reference.broadcast.params[name].float().numpy()[masks[name].numpy()])


def _all_layers(masks: Masks, sent: Masks) -> Mapping[str, Tensor]:
    """A client's masks: its own, and the broadcast's where it sends none."""
    return {**sent, **masks}
