"""The compiled sum is, to the last bit, the one that is written down in PyTorch."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from feddst.core.fixedpoint import ExactSum, in_parts

FLOATS = st.floats(-(2.0**36), 2.0**36, width=32)


@given(st.lists(FLOATS, min_size=1, max_size=40), st.integers(1, 2**32 - 1), st.floats(-(2.0**50), 2.0**50))
def test_compiled_sums_are_those_of_pytorch(values: list[float], weight: int, before: float) -> None:
    given_values = torch.tensor(values)
    found, expected = (ExactSum(len(values), torch.device("cpu"), wide=False) for _ in range(2))
    for total in (found, expected):
        total.parts[0].fill_(float(round(before)))
    found.add_times(given_values, weight)
    expected.add(in_parts(given_values, weight))
    for one, two in zip(found.parts, expected.parts, strict=True):
        assert np.array_equal(one.numpy(), two.numpy())
