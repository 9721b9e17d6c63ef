"""Sparse files: a broadcast of the wire format (docs/wire.md), which has only the weights that are there.

The file is a safetensors file with one tensor, the payload's bytes. Its metadata hold what server and client know
beforehand (the names, shapes and number formats of all tensors) and the description, with a checksum over both; the
payload has its own. A reader does not trust it.
"""

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from feddst.core import Broadcast, Masks, Tensors
from feddst.errors import CheckpointError, ModelError, OptionError, WireError
from feddst.export.dense import KEY
from feddst.runtime.tensorfile import pack
from feddst.wire import (
    BroadcastEncoder,
    Field,
    Layout,
    MaskHistory,
    WireConfig,
    check_size,
    decode_broadcast,
    model_layout,
)

PAYLOAD = "payload"
LAYOUT = "layout"
CHECKSUM = "crc32"

MOST_GROWTH = 1024
"""A file may unpack to so many times its own size: a mask that keeps one weight in a thousand still can."""

ALWAYS_ALLOWED = 2**26
"""A file may unpack to so many bytes whatever its size."""

_MOST_DIMENSIONS = 64
_LARGEST = 2**33
_PARAMS = ("float32", "float16", "bfloat16")
_KINDS = (*_PARAMS, "float64", "int64", "int32", "int16", "int8", "uint8", "bool")


def sparse_bytes(
    params: Tensors, buffers: Tensors, masks: Masks, description: str, *, values: str, round: int, seed: int
) -> bytes:
    """The file of a model, with its values as a codec of the wire carries them; what it rounds follows from `seed`."""
    sent = Broadcast(round, params, buffers, masks)
    wire = WireConfig(download=values, packing="deflate")
    try:
        payload = BroadcastEncoder(sent, wire, MaskHistory(0), seed).message_for(0).payload
    except WireError as error:
        raise CheckpointError(f"the model cannot be written as a sparse file: {error}") from None
    layout = model_layout(params, buffers)
    if _unpacked(layout) > _most(len(payload)):
        raise OptionError(
            f"format must be another: {len(payload):,} bytes would unpack to {_unpacked(layout):,}, "
            f"more than {MOST_GROWTH} times as many, which nobody would read"
        )
    listed = json.dumps([[f.group, f.name, list(f.shape), _kind(f.dtype)] for f in layout.fields], ensure_ascii=False)
    content = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    texts = {KEY: description, LAYOUT: listed, CHECKSUM: _checksum(description, listed)}
    return pack({PAYLOAD: content}, texts)


def is_sparse(metadata: Mapping[str, str]) -> bool:
    """Whether a safetensors file with these metadata is a sparse file."""
    return LAYOUT in metadata


def read_sparse(tensors: Tensors, metadata: Mapping[str, str]) -> tuple[dict[str, Tensor], str]:
    """The tensors of a sparse file, dense, and its description, from what `tensorfile.unpack` found in it."""
    description, listed = metadata.get(KEY, ""), metadata[LAYOUT]
    if metadata.get(CHECKSUM) != _checksum(description, listed):
        raise CheckpointError("the checksum of its description does not match")
    payload = tensors.get(PAYLOAD)
    if tensors.keys() != {PAYLOAD} or payload is None or payload.dtype != torch.uint8 or payload.dim() != 1:
        raise CheckpointError("it does not hold one payload of bytes")
    layout = _layout(listed)
    if _unpacked(layout) > _most(len(payload)):
        raise CheckpointError(f"{len(payload)} bytes would unpack to {_unpacked(layout)}")
    try:
        sent = decode_broadcast(payload.numpy().tobytes(), layout)
    except WireError as error:
        raise CheckpointError(f"its payload is refused: {error}") from None
    return {**sent.params, **sent.buffers}, description


def _layout(text: str) -> Layout:
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        raise CheckpointError("the list of its tensors is not JSON") from None
    if not isinstance(listed, list):
        raise CheckpointError("the list of its tensors is none")
    fields = tuple(map(_field, listed))
    if [(f.group != "params", f.name) for f in fields] != sorted({(f.group != "params", f.name) for f in fields}):
        raise CheckpointError("its tensors are not in their order")
    layout = Layout(fields)
    try:
        check_size(layout)
    except ModelError as error:
        raise CheckpointError(str(error)) from None
    return layout


def _field(entry: Any) -> Field:
    if not isinstance(entry, list) or len(entry) != 4:
        raise CheckpointError("a tensor is not described as it should be")
    group, name, shape, kind = entry
    if group not in ("params", "buffers") or not isinstance(name, str) or not _is_text(name):
        raise CheckpointError("a tensor is not a parameter or buffer with a name")
    if not isinstance(kind, str) or kind not in (_PARAMS if group == "params" else _KINDS):
        raise CheckpointError(f"tensor {name!r} has the unknown dtype {kind!r}")
    sides = isinstance(shape, list) and all(type(side) is int and 0 <= side < _LARGEST for side in shape)
    # An empty tensor may have huge other dimensions, and PyTorch multiplies those as well.
    if not sides or len(shape) > _MOST_DIMENSIONS or math.prod(side or 1 for side in shape) >= _LARGEST:
        raise CheckpointError(f"tensor {name!r} has no sensible shape")
    return Field(group, name, tuple(shape), getattr(torch, kind))


def _unpacked(layout: Layout) -> int:
    return sum(math.prod(field.shape) * field.dtype.itemsize for field in layout.fields)


def _most(payload: int) -> int:
    return max(ALWAYS_ALLOWED, MOST_GROWTH * payload)


def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_text(name: str) -> bool:
    """Whether a name can be encoded: JSON can hold lone surrogates, which cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checksum(*texts: str) -> str:
    whole = "\n".join(texts).encode("utf-8", "surrogatepass")
    return f"{zlib.crc32(whole):08x}"
