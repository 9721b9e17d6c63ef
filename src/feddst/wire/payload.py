"""A whole payload: header, mask, buffers and values, checked for damage."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from feddst.core import Tensors
from feddst.errors import ExcessError, ModelError, WireError
from feddst.wire.codecs import OTHERS, codec_coded
from feddst.wire.header import CHECKED, SIZE, Header, Kind, Packing, pack_checksum, padding, read_header
from feddst.wire.layout import Field, Layout
from feddst.wire.masks import most_mask_bytes
from feddst.wire.values import ValueCodec

PIECE = 1 << 14
"""Bytes that are unpacked at a time."""


LONGEST_SECTION = 2**32 - 1
"""The most that a header's 32 bits can express."""

_SMALL = 4096

_ORDERED = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
)
"""Formats in which PyTorch finds the largest value; others are widened first."""


@dataclass(frozen=True)
class Sections:
    """An undamaged payload, taken apart but not yet understood."""

    header: Header
    mask: memoryview
    buffers: memoryview
    values: memoryview


def join(header: Header, mask: bytes, buffers: bytes, values: bytes) -> bytes:
    """The payload of these sections."""
    parts = [mask, bytes(padding(len(mask))), buffers, bytes(padding(len(buffers))), values]
    head = header.pack()
    checksum = zlib.crc32(head)
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([head, pack_checksum(checksum), *parts])


def split(payload: bytes | memoryview, layout: Layout, kind: Kind) -> Sections:
    """Take a payload for this layout apart; raises `WireError` unless it is undamaged and of this kind."""
    view = memoryview(payload).cast("B").toreadonly()
    header, checksum = read_header(view)
    if header.kind is not kind:
        raise WireError(f"the payload is of kind {header.kind.name}, not {kind.name}")
    if header.fingerprint != layout.fingerprint:
        raise WireError(
            f"the payload is for another model: fingerprint {header.fingerprint:016x}, not {layout.fingerprint:016x}"
        )
    codec = codec_coded(header.values)
    _refuse_above("mask section", header.mask_bytes, most_mask_bytes(layout))
    _refuse_above("value section", header.value_bytes, codec.size(layout.coded_sizes))
    buffers = layout.buffer_bytes
    first = SIZE + header.mask_bytes + padding(header.mask_bytes)
    second = first + buffers + padding(buffers)
    if len(view) != second + header.value_bytes:
        raise WireError(f"the payload has {len(view)} bytes, its header speaks of {second + header.value_bytes}")
    if zlib.crc32(view[SIZE:], zlib.crc32(view[:CHECKED])) != checksum:
        raise WireError("the checksum does not match: the payload is damaged")
    mask_end, buffers_end = SIZE + header.mask_bytes, first + buffers
    if any(view[mask_end:first]) or any(view[buffers_end:second]):
        raise WireError("the padding between sections is not zero")
    return Sections(header, view[SIZE:mask_end], view[first:buffers_end], view[second:])


def mask_bytes(payload: bytes) -> int:
    """How many bytes of a valid payload are its mask."""
    return read_header(memoryview(payload))[0].mask_bytes


def payload_size(layout: Layout, mask_bytes: int, value_bytes: int) -> int:
    """How many bytes a payload has, with sections of these lengths."""
    buffers = layout.buffer_bytes
    return SIZE + mask_bytes + padding(mask_bytes) + buffers + padding(buffers) + value_bytes


def counts_of(layout: Layout, active: Mapping[str, int]) -> list[int]:
    """How many values each coded tensor has; `active` counts the weights that masks keep."""
    return [active.get(field.name, field.size) if field.group == "params" else field.size for field in layout.coded]


def write_values(
    codec: ValueCodec, tensors: Sequence[Tensor], draws: np.random.Generator, *, deflate: bool
) -> tuple[Packing, bytes]:
    """The value section of these tensors, each flat; deflated only if that makes it smaller."""
    plain = codec.encode([value.float() for value in tensors], draws)
    if deflate:
        coder = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
        smaller = coder.compress(plain) + coder.flush()
        if len(smaller) < len(plain):
            return Packing.DEFLATE, smaller
    return Packing.PLAIN, plain


def read_values(sections: Sections, counts: Sequence[int]) -> list[Tensor]:
    """The tensors of a value section, flat, with `counts` values each."""
    codec = codec_coded(sections.header.values)
    data = _plain(sections, codec.size(counts))
    return _decoded(codec, data, counts) if codec.code in OTHERS else codec.decode(data, counts)


def write_raw(fields: Sequence[Field], tensors: Tensors) -> bytes:
    """Tensors in their own number format, one after another."""
    return b"".join(_bytes_of(tensors[field.name].detach().contiguous()) for field in fields)


def read_raw(data: memoryview, fields: Sequence[Field]) -> dict[str, Tensor]:
    """What `write_raw` wrote; booleans must be 0 or 1."""
    found: dict[str, Tensor] = {}
    start = 0
    for field in fields:
        size = field.bytes
        part = bytearray(data[start : start + size])
        if field.dtype is torch.bool and size and np.frombuffer(part, dtype=np.uint8).max() > 1:
            raise WireError(f"{field.name} is boolean, and holds something else than 0 and 1")
        value = torch.frombuffer(part, dtype=field.dtype) if size else torch.empty(0, dtype=field.dtype)
        found[field.name] = value.reshape(field.shape)
        start += size
    return found


def refuse_large(tensors: Tensors, limit: float) -> None:
    """Raise unless all values are numbers below a limit in magnitude. Small tensors are looked at together."""
    looked_at = {name: value for name, value in tensors.items() if value.dtype is not torch.bool}
    if any(value.is_cuda for value in looked_at.values()) and _peaks(looked_at) < limit:
        return
    small: dict[torch.dtype, list[Tensor]] = {}
    for value in looked_at.values():
        if value.numel() < _SMALL:
            small.setdefault(value.dtype, []).append(value.reshape(-1))
    whole = [value for value in looked_at.values() if value.numel() >= _SMALL]
    if all(_peak(value) < limit for value in [*map(torch.cat, small.values()), *whole]):
        return
    name = next(name for name, value in looked_at.items() if not _peak(value) < limit)
    raise ExcessError(f"{name} holds {_peak(tensors[name]):g}: not a number, or too large to average")


def check_size(layout: Layout) -> None:
    """Raise `ModelError` if a broadcast of this layout could have a section that is too long for the header."""
    sizes = {"values": 4 * sum(layout.coded_sizes), "buffers": layout.buffer_bytes}
    for what, size in sizes.items():
        if size > LONGEST_SECTION:
            raise ModelError(f"the model's {what} take {size:,} bytes; at most {LONGEST_SECTION:,} can be sent")


def _peaks(tensors: Tensors) -> float:
    """The largest magnitude of all, found in one go; NaN if there is one."""
    each = [value.abs().amax().double() for value in tensors.values() if value.numel()]
    return float(torch.stack(each).amax()) if each else 0.0


def _peak(values: Tensor) -> float:
    """The largest magnitude; NaN if there is one."""
    if not values.numel():
        return 0.0
    low, high = torch.aminmax(values if values.dtype in _ORDERED else values.double())
    return max(-float(low), float(high))


def _decoded(codec: ValueCodec, data: memoryview, counts: Sequence[int]) -> list[Tensor]:
    """Untrusted bytes decoded by another package's codec; any exception becomes a `WireError`."""
    try:
        found = codec.decode(data, counts)
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"{codec.name} cannot read the values: {type(error).__name__}: {error}") from error
    if [value.numel() for value in found] != list(counts):
        raise WireError(f"{codec.name} makes other numbers of values than {', '.join(map(str, counts))}")
    return found


def _plain(sections: Sections, size: int) -> memoryview:
    """The value section unpacked; never more than `size` bytes are made of it."""
    if sections.header.packing is Packing.PLAIN:
        if len(sections.values) != size:
            raise WireError(f"the value section has {len(sections.values)} bytes, {size} are expected")
        return sections.values
    return memoryview(_inflated(sections.values, size))


def _inflated(deflated: memoryview, size: int) -> bytearray:
    """The `size` bytes that a section unpacks to, a piece at a time, so that nothing else takes memory."""
    wrong = WireError(f"the value section does not unpack to {size} bytes")
    coder, found, end = zlib.decompressobj(-15), bytearray(size), 0
    try:
        for start in range(0, len(deflated), PIECE):
            if coder.eof:
                raise wrong
            piece = coder.decompress(deflated[start : start + PIECE], PIECE)
            while piece:
                end += len(piece)
                if end > size:
                    raise wrong
                found[end - len(piece) : end] = piece
                piece = coder.decompress(coder.unconsumed_tail, PIECE)
    except zlib.error as error:
        raise WireError(f"the value section cannot be unpacked: {error}") from None
    if end != size or not coder.eof or coder.unused_data:
        raise wrong
    return found


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _refuse_above(what: str, size: int, most: int) -> None:
    if size > most:
        raise WireError(f"the {what} would have {size} bytes, this model's has at most {most}")
