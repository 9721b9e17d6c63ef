"""Votes: one bit for each value, which is +1 or −1."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from feddst.errors import WireError
from feddst.wire.values import ValueCodec, cut


class Sign(ValueCodec):
    """1 for +1 and 0 for −1, all tensors in one stream, first value in the lowest bit of a byte, zeros at the end."""

    name = "sign"
    code = 5
    elementwise = True
    random = False

    def received(self, tensors: Sequence[Tensor], draws: Sequence[np.random.Generator]) -> list[Tensor]:
        return list(tensors)

    def size(self, counts: Sequence[int]) -> int:
        return -(-sum(counts) // 8)

    def encode(self, tensors: Sequence[Tensor], draws: np.random.Generator) -> bytes:
        values = torch.cat([*tensors, torch.empty(0)])
        if not (values.abs() == 1).all():
            raise WireError("the codec sign carries +1 and −1 and nothing else")
        return np.packbits(values.numpy() > 0, bitorder="little").tobytes()

    def decode(self, data: memoryview, counts: Sequence[int]) -> list[Tensor]:
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        if bits[sum(counts) :].any():
            raise WireError("the bits after the last sign are not zero")
        return cut(torch.from_numpy(bits[: sum(counts)]).float().mul_(2).sub_(1), counts)
