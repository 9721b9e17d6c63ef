"""Every random draw of a run comes from here, keyed by what it is for.

A generator is a pure function of (seed, purpose, round, client), so no draw depends on the engine, on the
number of workers, or on what was drawn before: a resumed run draws what an unbroken one would have.
"""

import hashlib
import struct

import numpy as np

LARGEST_SEED = 2**63 - 1


def generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """The Philox generator for one purpose of one client in one round."""
    return np.random.Generator(np.random.Philox(key=_key(seed, purpose, round, client)))


def torch_seed(seed: int, purpose: str) -> int:
    """A seed for `torch.manual_seed`, where PyTorch itself draws (a module's initial weights)."""
    return _key(seed, purpose, 0, 0) & LARGEST_SEED


def _key(seed: int, purpose: str, round: int, client: int) -> int:
    packed = struct.pack("<qqq", seed, round, client) + purpose.encode()
    return int.from_bytes(hashlib.blake2b(packed, digest_size=16).digest(), "little")
