"""Every random draw of a run comes from here, keyed by what it is for.

A generator is a pure function of (seed, purpose, round, client), so no draw depends on the engine, on the
number of workers, or on what was drawn before: a resumed run draws what an unbroken one would have.
"""

import hashlib
import struct
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

LARGEST_SEED = 2**63 - 1


def generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """The Philox generator for one purpose of one client in one round."""
    words = _Words(_digest(seed, purpose, round, client))
    return np.random.Generator(np.random.Philox(words))  # type: ignore[arg-type]


def torch_seed(seed: int, purpose: str) -> int:
    """A seed for `torch.manual_seed`, where PyTorch itself draws (a module's initial weights)."""
    return int.from_bytes(_digest(seed, purpose, 0, 0), "little") & LARGEST_SEED


def _digest(seed: int, purpose: str, round: int, client: int) -> bytes:
    packed = struct.pack("<qqq", seed, round, client) + purpose.encode()
    return hashlib.blake2b(packed, digest_size=16).digest()


class _Words(ISeedSequence):
    """A key as numpy asks for one. `Philox(key=…)` makes the same generator, after asking the system for a seed too."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return np.frombuffer(self._digest, dtype=np.dtype(dtype).newbyteorder("<"))[:n_words].astype(dtype)
