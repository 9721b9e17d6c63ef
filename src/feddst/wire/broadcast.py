"""Broadcasts: values are written once a round, the mask as each client needs it."""

from dataclasses import replace
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
from feddst.wire.task import Message
from feddst.wire.values import Float32

LARGEST_VALUE = 2.0**36


class BroadcastEncoder:
    """Encodes one broadcast for its clients. `reference` is the broadcast as they decode it.

    Nothing is written before a message's payload is needed, unless the codec rounds the values. If `audited`, payloads
    that engines only count are written too, to check the counts.
    """

    def __init__(
        self,
        sent: Broadcast,
        wire: WireConfig,
        history: MaskHistory,
        seed: int,
        facts: MaskFacts | None = None,
        *,
        audited: bool = False,
    ) -> None:
        self.audited = audited
        self._wire = wire
        self._history = history
        self._seed = seed
        self._exact = Reference(sent, facts)
        self._layout = self._exact.layout
        self._codec = codec_named(wire.download, "wire.download")
        self._payloads: dict[bytes, bytes] = {}
        self.reference = self._received()

    def message_for(self, client: int) -> Message:
        """The message for this client, assumed to arrive; clients that hold the same masks share the bytes."""
        held = self._history.held_by(client)
        self._history.received(client, self._exact.bitmap)
        return Message(held=held, encoder=self)

    def sizes(self, message: Message) -> tuple[int, int]:
        """How many bytes a message has, and how many of them are the mask: measured if it is written, else counted.

        If `audited`, it is written, and must have as many as counted.
        """
        _, mask = self._exact.facts.section_for(message.held, self._wire.mask)
        if message.written and not self.audited:
            return len(message.payload), len(mask)
        size = payload_size(self._layout, len(mask), self._codec.size(self._counts))
        if not self.audited:
            return size, len(mask)
        if self._wire.packing == "plain" and len(message.payload) != size:
            raise AuditError(f"a broadcast was counted as {size} bytes and has {len(message.payload)}")
        return len(message.payload), len(mask)

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

    def payload(self, held: bytes) -> bytes:
        """The bytes for clients that hold the mask of this bitmap."""
        if held not in self._payloads:
            code, mask = self._exact.facts.section_for(held, self._wire.mask)
            self._payloads[held] = join(self._header(code, mask, held), mask, self._buffers, self._values[1])
        return self._payloads[held]

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
        """The update as a change of the server's own weights, if the broadcast rounded them.

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
    """The same as a `Reference`."""
    return BroadcastDecoder(layout).read(payload, held)


class BroadcastDecoder:
    """Reads the broadcasts of one layout for clients in one process: those with the same content are shared."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._known: list[tuple[Sections, Reference]] = []

    def read(self, payload: bytes | memoryview, held: bytes = b"") -> Reference:
        """The broadcast in a payload, for a client that holds the mask of bitmap `held`."""
        sections = split(payload, self._layout, Kind.BROADCAST)
        header = sections.header
        if header.weight:
            raise WireError("a broadcast has no weight of its own")
        check_reference(header, mask_name(held))
        known = decode_bitmap(held, self._layout) if refers(header) else None
        masks = decode_masks(header.mask, sections.mask, self._layout, known, any_count)
        for other, reference in self._known:
            if _same_values(sections, other) and same_masks(masks, reference.broadcast.masks):
                return reference
        self._known.append((sections, _assemble(sections, self._layout, masks, positions_of(masks))))
        return self._known[-1][1]


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
