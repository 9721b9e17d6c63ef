"""Value codecs: the interface of all, and the plain number formats."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from feddst.core import Registry


class ValueCodec(ABC):
    """Turns a list of flat float32 tensors into bytes and back; both ends know how long each tensor is.

    `code` is its byte in the header: 0 to 127 for this package, 128 to 255 for others. A `relative` codec is given
    the change against the broadcast, where there is one, instead of the value. Random numbers come from `draws`, so
    that the bytes follow from the run's seed; a codec that is not `random` draws none. An `elementwise` codec treats
    each value by itself, and 0 stays 0.
    """

    registry: "ClassVar[Registry[ValueCodec]]"
    name: ClassVar[str]
    code: ClassVar[int]
    relative: ClassVar[bool] = False
    random: ClassVar[bool] = True
    elementwise: ClassVar[bool] = False

    @abstractmethod
    def size(self, counts: Sequence[int]) -> int:
        """Exactly how many bytes tensors of these many values take."""

    @abstractmethod
    def encode(self, tensors: Sequence[Tensor], draws: np.random.Generator) -> bytes:
        """The values as bytes."""

    @abstractmethod
    def decode(self, data: memoryview, counts: Sequence[int]) -> list[Tensor]:
        """Tensors of these many values from `size(counts)` bytes; `WireError` if they cannot come from `encode`.

        The caller may change them, and must check that they are finite and not too large.
        """

    def received(self, tensors: Sequence[Tensor], draws: Sequence[np.random.Generator]) -> list[Tensor]:
        """What would be decoded of K clients' tensors, [K, n] each, on any device, without writing bytes.

        `draws` has one generator for each client, or none if the codec is not `random`. This default writes the bytes
        all the same; codecs that can do better override it.
        """
        counts, device = [value.shape[1] for value in tensors], tensors[0].device
        found = []
        for row, draw in enumerate(draws or [np.random.default_rng(0)] * len(tensors[0])):
            data = self.encode([value[row].float().cpu() for value in tensors], draw)
            found.append(self.decode(memoryview(data), counts))
        return [torch.stack(values).to(device) for values in zip(*found, strict=True)]


def cut(values: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Consecutive pieces of these lengths."""
    return list(values.split_with_sizes(list(counts)))


class Float32(ValueCodec):
    """The values themselves, bit for bit."""

    name = "float32"
    code = 0
    random = False
    elementwise = True

    def received(self, tensors: Sequence[Tensor], draws: Sequence[np.random.Generator]) -> list[Tensor]:
        return list(tensors)

    def size(self, counts: Sequence[int]) -> int:
        return 4 * sum(counts)

    def encode(self, tensors: Sequence[Tensor], draws: np.random.Generator) -> bytes:
        return b"".join(value.numpy().astype("<f4", copy=False).data for value in tensors)

    def decode(self, data: memoryview, counts: Sequence[int]) -> list[Tensor]:
        values = np.frombuffer(data, dtype="<f4")
        return cut(torch.from_numpy(values.astype(np.float32, copy=not values.flags.writeable)), counts)


class HalfFloat(ValueCodec):
    """The nearest number of a 16-bit format; what is beyond its range becomes its largest."""

    kind: ClassVar[torch.dtype]
    random = False
    elementwise = True

    def received(self, tensors: Sequence[Tensor], draws: Sequence[np.random.Generator]) -> list[Tensor]:
        return [self._nearest(value).float() for value in tensors]

    def _nearest(self, values: Tensor) -> Tensor:
        most = torch.finfo(self.kind).max
        return values.clamp(-most, most).to(self.kind)

    def size(self, counts: Sequence[int]) -> int:
        return 2 * sum(counts)

    def encode(self, tensors: Sequence[Tensor], draws: np.random.Generator) -> bytes:
        nearest = self._nearest(torch.cat([*tensors, torch.empty(0)]))
        return nearest.view(torch.int16).numpy().astype("<i2", copy=False).tobytes()

    def decode(self, data: memoryview, counts: Sequence[int]) -> list[Tensor]:
        bits = np.frombuffer(data, dtype="<i2").astype(np.int16)
        return cut(torch.from_numpy(bits).view(self.kind).float(), counts)


class BFloat16(HalfFloat):
    """Float32's range with 8 bits of precision."""

    name = "bfloat16"
    code = 1
    kind = torch.bfloat16


class Float16(HalfFloat):
    """IEEE half precision: 11 bits, up to 65504."""

    name = "float16"
    code = 2
    kind = torch.float16
