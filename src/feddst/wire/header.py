"""The first 48 bytes of every payload."""

import struct
from dataclasses import dataclass
from enum import IntEnum

from feddst.errors import WireError
from feddst.wire.masks import MaskCode

MAGIC = b"FDST"
VERSION = 1
SIZE = 48
ALIGNMENT = 8
"""Every section begins at a multiple of this, with zeros before it."""

_FIELDS = struct.Struct("<4s5B3xIIIQII4x")
_CHECKSUM = struct.Struct("<I")
CHECKED = _FIELDS.size
"""Bytes of the header before its checksum."""


class Kind(IntEnum):
    """Which way a payload goes."""

    BROADCAST = 0
    UPDATE = 1


class Packing(IntEnum):
    """How the value section is compressed."""

    PLAIN = 0
    DEFLATE = 1


@dataclass(frozen=True)
class Header:
    """The header's fields.

    `weight` is the client's n_c, 0 in a broadcast. `reference` is the name of the mask that this payload's mask
    refers to, 0 where it refers to none. The two lengths are those of the sections as they lie in the payload,
    without padding.
    """

    kind: Kind
    mask: MaskCode
    values: int
    packing: Packing
    round: int
    weight: int
    reference: int
    fingerprint: int
    mask_bytes: int
    value_bytes: int

    def pack(self) -> bytes:
        """The header up to its checksum."""
        return _FIELDS.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.mask,
            self.values,
            self.packing,
            self.round,
            self.weight,
            self.reference,
            self.fingerprint,
            self.mask_bytes,
            self.value_bytes,
        )


def read_header(payload: memoryview) -> tuple[Header, int]:
    """A payload's header and checksum, each field checked as far as it can be by itself."""
    if len(payload) < SIZE:
        raise WireError(f"the payload has {len(payload)} bytes, its header alone would have {SIZE}")
    magic, version, kind, mask, values, packing, *numbers = _FIELDS.unpack_from(payload)
    if magic != MAGIC:
        raise WireError(f"the payload begins with {bytes(magic)!r}, not with {MAGIC!r}")
    if version != VERSION:
        raise WireError(f"the payload has format version {version}, this program reads {VERSION}")
    if any(payload[9:12]) or any(payload[40:44]):
        raise WireError("reserved bytes of the header are not zero")
    try:
        header = Header(Kind(kind), MaskCode(mask), values, Packing(packing), *numbers)
    except ValueError as error:
        raise WireError(f"the header has an unknown code: {error}") from None
    return header, _CHECKSUM.unpack_from(payload, CHECKED)[0]


def padding(length: int) -> int:
    """How many zeros follow a section of this length."""
    return -length % ALIGNMENT


def pack_checksum(checksum: int) -> bytes:
    """The last bytes of the header."""
    return _CHECKSUM.pack(checksum)
