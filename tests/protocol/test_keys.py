"""Keyed draws: the same key draws the same, any other key something else."""

from hypothesis import given
from hypothesis import strategies as st

from feddst.protocol.keys import generator, torch_seed

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
