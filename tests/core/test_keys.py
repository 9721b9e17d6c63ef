"""Keyed draws: the same key draws the same, any other key something else."""

import hashlib
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feddst.core.keys import generator, torch_seed

keys = st.tuples(
    st.integers(0, 2**40), st.sampled_from(["cohort", "minibatches", "x"]), st.integers(0, 9), st.integers(0, 9)
)


@given(keys, keys)
def test_draws_are_a_function_of_the_key(a: tuple[int, str, int, int], b: tuple[int, str, int, int]) -> None:
    first, again, other = (generator(*key).integers(0, 2**62, 4).tolist() for key in (a, a, b))
    assert first == again
    assert (first == other) == (a == b)


def test_torch_seeds_fit_what_torch_takes() -> None:
    seeds = {torch_seed(seed, "weights") for seed in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)


@given(keys)
def test_the_generator_is_philox_with_the_digest_of_the_key(key: tuple[int, str, int, int]) -> None:
    seed, purpose, *rest = key
    digest = hashlib.blake2b(struct.pack("<qqq", seed, *rest) + purpose.encode(), digest_size=16).digest()
    plain = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
    assert generator(*key).random(5).tolist() == plain.random(5).tolist()
