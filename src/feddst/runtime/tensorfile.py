"""Named tensors as bytes, in the safetensors format.

The length of the header (8 bytes, little-endian), the header as JSON, then the tensors' bytes one after another without
gaps. The header gives each tensor's dtype, shape and place, and under `__metadata__` texts by name. The format is small
enough to be read and written here, so that checkpoints need no package.

A sealed file has the checksum of all its bytes among its metadata, at a fixed place.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from feddst.errors import CheckpointError

_LENGTH = 8
_MOST_DIMENSIONS = 64
_LARGEST_HEADER = 100_000_000
_METADATA = "__metadata__"
_CHECKSUM, _OWN = "checksum", "feddst"
"""The metadata of a sealed file: its checksum, and the text for its reader."""
_DIGITS = 32
_BEFORE_CHECKSUM = f'{{"{_METADATA}":{{"{_CHECKSUM}":"'.encode()
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def pack(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The file's content; tensors may lie on any device, share memory and have any strides."""
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    parts: list[bytes] = []
    end = 0
    # The widest first, so that every tensor begins at a multiple of its width.
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
        if tensor.dtype not in _NAMES:
            raise CheckpointError(f"tensor {name!r} cannot be kept: its dtype is {tensor.dtype}")
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        place = [end, end + len(content)]
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        parts.append(content)
        end += len(content)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *parts])


def unpack(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, on the CPU, and its metadata. Raises `CheckpointError` if the file is damaged."""
    header, data = _header(content)
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise CheckpointError("its metadata are not texts")
    places = {name: _Place(name, entry) for name, entry in header.items()}
    end = 0
    for place in sorted(places.values(), key=lambda place: (place.begin, place.end)):
        if place.begin != end:
            raise CheckpointError(f"tensor {place.name!r} begins at byte {place.begin}, not at {end}")
        end = place.end
    if end != len(data):
        raise CheckpointError(f"its tensors take {end} bytes, but there are {len(data)}")
    return {name: place.tensor(data) for name, place in places.items()}, metadata


def pack_sealed(tensors: Mapping[str, Tensor], about: str) -> bytes:
    """The content of a file with its own checksum, the tensors, and a text about them."""
    content = bytearray(pack(tensors, {_CHECKSUM: "0" * _DIGITS, _OWN: about}))
    content[_PLACE] = _checksum(content)
    return bytes(content)


def unpack_sealed(content: bytes) -> tuple[dict[str, Tensor], str, bool]:
    """The tensors of such a file, the text about them, and whether there was a checksum.

    Files older than checksums have none. Raises `CheckpointError` if the file is damaged.
    """
    sealed = content[_LENGTH : _PLACE.start] == _BEFORE_CHECKSUM
    if sealed and content[_PLACE] != _checksum(content):
        raise CheckpointError("its checksum is not that of its content")
    tensors, metadata = unpack(content)
    if metadata.keys() != ({_CHECKSUM, _OWN} if sealed else {_OWN}):
        raise CheckpointError("its metadata are not those of a run")
    return tensors, metadata[_OWN], sealed


_PLACE = slice(_LENGTH + len(_BEFORE_CHECKSUM), _LENGTH + len(_BEFORE_CHECKSUM) + _DIGITS)
"""Where the checksum lies in a sealed file."""


def _checksum(content: bytes | bytearray) -> bytes:
    """The checksum of a sealed file: that of all bytes before and after the place where it lies."""
    digest = hashlib.blake2b(memoryview(content)[: _PLACE.start], digest_size=_DIGITS // 2)
    digest.update(memoryview(content)[_PLACE.stop :])
    return digest.hexdigest().encode()


def _header(content: bytes) -> tuple[dict[str, Any], memoryview]:
    length = int.from_bytes(content[:_LENGTH], "little")
    if len(content) < _LENGTH or length > min(_LARGEST_HEADER, len(content) - _LENGTH):
        raise CheckpointError("its header is cut short")
    try:
        header = json.loads(content[_LENGTH : _LENGTH + length])
    except (ValueError, RecursionError):
        raise CheckpointError("its header is not JSON") from None
    if not isinstance(header, dict):
        raise CheckpointError("its header is not a table")
    return header, memoryview(content)[_LENGTH + length :]


class _Place:
    """Where a tensor lies, and what it is; checked."""

    def __init__(self, name: str, entry: Any) -> None:
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise CheckpointError(f"tensor {name!r} is not described as it should be")
        shape, place, dtype = entry["shape"], entry["data_offsets"], entry["dtype"]
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise CheckpointError(f"tensor {name!r} has the unknown dtype {dtype!r}")
        if not _whole(shape) or not _whole(place) or len(place) != 2 or len(shape) > _MOST_DIMENSIONS:
            raise CheckpointError(f"tensor {name!r} has no sensible shape and place")
        self.name, self.dtype, self.shape = name, _DTYPES[dtype], shape
        self.begin, self.end = place
        size = math.prod(shape) * self.dtype.itemsize
        if self.end - self.begin != size:
            raise CheckpointError(f"tensor {name!r} needs {size} bytes, but has {self.end - self.begin}")

    def tensor(self, data: memoryview) -> Tensor:
        if self.begin == self.end:
            return torch.empty(0, dtype=self.dtype).reshape(self.shape)
        flat = torch.frombuffer(bytearray(data[self.begin : self.end]), dtype=torch.uint8)
        if self.dtype == torch.bool and int(flat.max()) > 1:
            raise CheckpointError(f"tensor {self.name!r} holds truth values other than 0 and 1")
        return flat.view(self.dtype).reshape(self.shape)


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and 0 <= number < 2**63 for number in numbers)
