"""Broadcasts: values are written once a round, the mask as each client needs it."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from feddst.core import Broadcast, Positions, Tensors, Update, generator, packed, positions_of, unpacked
from feddst.core.tensors import same_masks
from feddst.errors import AuditError, WireError
from feddst.wire.codecs import codec_named
from feddst.wire.config import WireConfig
from feddst.wire.header import Header, Kind, Packing
from feddst.wire.history import NO_MASK, MaskHistory, mask_name
from feddst.wire.layout import Layout
from feddst.wire.masks import MaskCode, any_count, decode_bitmap, decode_masks
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
from feddst.wire.reference import MaskFacts, Reference, check_reference, refers
from feddst.wire.values import Float32

LARGEST_VALUE = 2.0**36


@dataclass(frozen=True)
class Parcel:
    """A payload for one client, and the bitmap of the mask which that client is known to hold."""

    payload: bytes
    held: bytes


class Downlink:
    """One round's broadcast on its way to clients. `reference` is what they will have when it has arrived.

    Nothing is written before a parcel is asked for, unless the values are rounded on their way.
    """

    def __init__(
        self, sent: Broadcast, wire: WireConfig, history: MaskHistory, seed: int, facts: MaskFacts | None = None
    ) -> None:
        self._wire = wire
        self._history = history
        self._seed = seed
        self._exact = Reference(sent, facts)
        self._layout = self._exact.layout
        self._codec = codec_named(wire.download, "wire.download")
        self._payloads: dict[bytes, bytes] = {}
        self.reference = self._received()

    def parcel_for(self, client: int) -> Parcel:
        """What goes to this client, which is taken to arrive."""
        held = self._history.held_by(client)
        if held not in self._payloads:
            self._payloads[held] = self._payload(held)
        self._history.received(client, self._exact.bitmap)
        return Parcel(self._payloads[held], held)

    def sizes_for(self, client: int, *, audited: bool) -> tuple[int, int]:
        """How many bytes go to this client, which are taken to arrive, and how many of them are the mask.

        They are not written, but if `audited` they are, and must be as many.
        """
        held = self._history.held_by(client)
        _, mask = self._exact.facts.section_for(held, self._wire.mask)
        size = payload_size(self._layout, len(mask), self._codec.size(self._counts))
        if audited:
            written = len(self.parcel_for(client).payload)
            if self._wire.packing == "plain" and written != size:
                raise AuditError(f"a broadcast was counted as {size} bytes and has {written}")
            return written, len(mask)
        self._history.received(client, self._exact.bitmap)
        return size, len(mask)

    @cached_property
    def _counts(self) -> list[int]:
        return counts_of(self._layout, self._exact.active)

    @cached_property
    def _values(self) -> tuple[Packing, bytes]:
        """The value section."""
        tensors = [self._exact.values[field.name].reshape(-1).cpu() for field in self._layout.params]
        draws = generator(self._seed, "broadcast rounding", self._exact.broadcast.round)
        return write_values(self._codec, tensors, draws, deflate=self._wire.packing == "deflate")

    @cached_property
    def _buffers(self) -> bytes:
        """The buffer section."""
        buffers = {name: value.cpu() for name, value in self._exact.broadcast.buffers.items()}
        return write_raw(self._layout.buffers, buffers)

    def _payload(self, held: bytes) -> bytes:
        code, mask = self._exact.facts.section_for(held, self._wire.mask)
        return join(self._header(code, mask, held), mask, self._buffers, self._values[1])

    def _header(self, code: MaskCode, mask: bytes, held: bytes) -> Header:
        packing, values = self._values
        return Header(
            kind=Kind.BROADCAST,
            mask=code,
            values=self._codec.code,
            packing=packing,
            round=self._exact.broadcast.round,
            weight=0,
            reference=mask_name(held) if code in (MaskCode.SAME, MaskCode.DIFFERENCE) else NO_MASK,
            fingerprint=self._layout.fingerprint,
            mask_bytes=len(mask),
            value_bytes=len(values),
        )

    def unrounded(self, update: Update) -> Update:
        """The update as a change of the server's own weights, where the broadcast had them rounded.

        Otherwise rounding the broadcast would round the server's model each round, and undo small steps.
        """
        if self.correction is None:
            return update
        positions = self.reference.positions if update.masks is None else positions_of(update.masks)
        added = packed(self.correction, positions)
        return replace(update, params={name: v + added[name] for name, v in update.params.items()})

    @cached_property
    def correction(self) -> Tensors | None:
        """What rounding took from each weight of the broadcast; None if it was not rounded."""
        if isinstance(self._codec, Float32):
            return None
        own, sent = self._exact.broadcast.params, self.reference.broadcast.params
        return {name: own[name] - sent[name] for name in own}

    def _received(self) -> Reference:
        """The broadcast as clients decode it: the same, unless its values were rounded."""
        if isinstance(self._codec, Float32):
            refuse_large({**self._exact.broadcast.params, **self._exact.broadcast.buffers}, LARGEST_VALUE)
            return self._exact
        header = self._header(MaskCode.SAME, b"", self._exact.bitmap)
        sections = Sections(header, memoryview(b""), memoryview(self._buffers), memoryview(self._values[1]))
        here = self._exact.on_cpu()
        found = _assemble(sections, self._layout, dict(here.broadcast.masks), here.positions).broadcast
        device = next(iter(self._exact.broadcast.params.values())).device
        params = {name: value.to(device) for name, value in found.params.items()}
        buffers = {name: value.to(device) for name, value in found.buffers.items()}
        return Reference(Broadcast(found.round, params, buffers, self._exact.broadcast.masks), self._exact.facts)


def decode_broadcast(payload: bytes | memoryview, layout: Layout, held: bytes = b"") -> Broadcast:
    """The broadcast in a payload, for a model of this layout, by a client that holds the mask of bitmap `held`."""
    return decode_reference(payload, layout, held).broadcast


def decode_reference(payload: bytes | memoryview, layout: Layout, held: bytes = b"") -> Reference:
    """The same with what follows from it."""
    return Inbox(layout).open(payload, held)


class Inbox:
    """Where clients in one place open their broadcasts of one layout: those with the same content share what it is."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._opened: list[tuple[Sections, Reference]] = []

    def open(self, payload: bytes | memoryview, held: bytes = b"") -> Reference:
        """The broadcast in a payload, for a client that holds the mask of bitmap `held`."""
        sections = split(payload, self._layout, Kind.BROADCAST)
        header = sections.header
        if header.weight:
            raise WireError("a broadcast has no weight of its own")
        check_reference(header, mask_name(held))
        known = decode_bitmap(held, self._layout) if refers(header) else None
        masks = decode_masks(header.mask, sections.mask, self._layout, known, any_count)
        for other, reference in self._opened:
            if _same_values(sections, other) and same_masks(masks, reference.broadcast.masks):
                return reference
        self._opened.append((sections, _assemble(sections, self._layout, masks, positions_of(masks))))
        return self._opened[-1][1]


def _same_values(sections: Sections, other: Sections) -> bool:
    """Whether all but the masks is the same."""
    mine, its = sections.header, other.header
    return (mine.round, mine.values, mine.packing) == (its.round, its.values, its.packing) and all(
        np.array_equal(np.frombuffer(one, np.uint8), np.frombuffer(two, np.uint8))
        for one, two in ((sections.values, other.values), (sections.buffers, other.buffers))
    )


def _assemble(sections: Sections, layout: Layout, masks: dict[str, Tensor], positions: Positions) -> Reference:
    values = read_values(sections, counts_of(layout, {name: len(found) for name, found in positions.items()}))
    flat = {field.name: value.to(field.dtype) for field, value in zip(layout.params, values, strict=True)}
    buffers = read_raw(sections.buffers, layout.buffers)
    refuse_large({**flat, **buffers}, LARGEST_VALUE)
    whole = {field.name: flat[field.name].reshape(field.shape) for field in layout.params if field.name not in masks}
    spread = unpacked({name: flat[name] for name in masks}, positions, masks)
    params = {field.name: (spread if field.name in masks else whole)[field.name] for field in layout.params}
    sent = Broadcast(sections.header.round, params, buffers, masks)
    return Reference(sent, MaskFacts(masks, layout, positions))
