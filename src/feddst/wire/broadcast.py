"""Broadcasts: values are written once a round, the mask as each client needs it."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from feddst.errors import WireError
from feddst.protocol import Broadcast, Positions, Update, generator, positions_of, unpacked
from feddst.protocol.tensors import same_masks
from feddst.wire.codecs import codec_named
from feddst.wire.config import WireConfig
from feddst.wire.header import Header, Kind
from feddst.wire.history import NO_MASK, MaskHistory, mask_name
from feddst.wire.layout import Layout
from feddst.wire.masks import MaskCode, any_count, decode_bitmap, decode_masks, encode_masks
from feddst.wire.payload import (
    Sections,
    counts_of,
    join,
    read_raw,
    read_values,
    refuse_large,
    split,
    write_raw,
    write_values,
)
from feddst.wire.reference import Reference, check_reference, refers
from feddst.wire.values import Float32

LARGEST_VALUE = 2.0**36


@dataclass(frozen=True)
class Parcel:
    """A payload for one client, and the bitmap of the mask which that client is known to hold."""

    payload: bytes
    held: bytes


class Downlink:
    """One round's broadcast on its way to clients. `reference` is what they will have when it has arrived."""

    def __init__(self, sent: Broadcast, wire: WireConfig, history: MaskHistory, seed: int) -> None:
        exact = Reference(sent)
        self._wire = wire
        self._history = history
        self._layout = exact.layout
        self._codec = codec_named(wire.download, "wire.download")
        self._buffers = write_raw(self._layout.buffers, sent.buffers)
        tensors = [exact.values[field.name].reshape(-1) for field in self._layout.params]
        draws = generator(seed, "broadcast rounding", sent.round)
        self._packing, self._values = write_values(self._codec, tensors, draws, deflate=wire.packing == "deflate")
        self._payloads: dict[bytes, bytes] = {}
        self._exact = exact
        self.reference = self._received()

    def parcel_for(self, client: int) -> Parcel:
        """What goes to this client, which is taken to arrive."""
        held = self._history.held_by(client)
        if held not in self._payloads:
            self._payloads[held] = self._payload(held)
        self._history.received(client, self._exact.bitmap)
        return Parcel(self._payloads[held], held)

    def _payload(self, held: bytes) -> bytes:
        known = decode_bitmap(held, self._layout)
        code, mask = encode_masks(self._exact.broadcast.masks, self._layout, self._wire.mask, known)
        return join(self._header(code, mask, held), mask, self._buffers, self._values)

    def _header(self, code: MaskCode, mask: bytes, held: bytes) -> Header:
        return Header(
            kind=Kind.BROADCAST,
            mask=code,
            values=self._codec.code,
            packing=self._packing,
            round=self._exact.broadcast.round,
            weight=0,
            reference=mask_name(held) if code in (MaskCode.SAME, MaskCode.DIFFERENCE) else NO_MASK,
            fingerprint=self._layout.fingerprint,
            mask_bytes=len(mask),
            value_bytes=len(self._values),
        )

    def unrounded(self, update: Update) -> Update:
        """The update as a change of the server's own weights, where the broadcast had them rounded.

        Otherwise rounding the broadcast would round the server's model each round, and undo small steps.
        """
        if isinstance(self._codec, Float32):
            return update
        positions = self.reference.positions if update.masks is None else positions_of(update.masks)
        own, sent = self._exact.values_under(positions), self.reference.values_under(positions)
        return replace(update, params={name: v + (own[name] - sent[name]) for name, v in update.params.items()})

    def _received(self) -> Reference:
        """The broadcast as clients decode it: the same, unless its values were rounded."""
        header = self._header(MaskCode.SAME, b"", self._exact.bitmap)
        sections = Sections(header, memoryview(b""), memoryview(self._buffers), memoryview(self._values))
        return _assemble(sections, self._layout, dict(self._exact.broadcast.masks), self._exact.positions)


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
    return Reference(Broadcast(sections.header.round, params, buffers, masks), positions)
