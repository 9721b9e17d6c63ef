"""What is not a number must come out as such: a client that diverged must not seem to be well."""

import numpy as np
import pytest

from feddst import _native

SIDE = 6
RELU = ("relu", 0, (1, 1, 1, 1, 0, 0), False, True)


@pytest.mark.parametrize("isa", _native.supported())
@pytest.mark.parametrize("images", [1, 8, 20])
@pytest.mark.parametrize("window", [(3, 3, 1, 1, 0, 0), (3, 3, 1, 1, 1, 1), (2, 2, 2, 2, 0, 0)])
@pytest.mark.parametrize("relu", [False, True])
def test_a_maximum_does_not_lose_it_wherever_it_is(
    isa: str, images: int, window: tuple[int, int, int, int, int, int], relu: bool
) -> None:
    layers = [("max_pool", 0, window, False, True), *[RELU] * relu, ("linear", 2, (1, 1, 1, 1, 0, 0), False, True)]
    network = _native.Network((2, SIDE, SIDE), layers)
    session = _native.Session(network, isa)
    weights = np.ones(network.sizes[0], np.float32)
    session.load(_native.Weights(_native.Structure(network, [None]), [weights], [None]))
    for place in range(2 * SIDE * SIDE):
        for bad in (np.nan, np.inf):
            inputs = np.ones((images, 2 * SIDE * SIDE), np.float32)
            inputs[-1, place] = bad
            scores = np.empty((images, 2), np.float32)
            session.scores(inputs, scores)
            assert np.isfinite(scores[:-1]).all()
            assert np.array_equal(scores[-1], [bad, bad], equal_nan=True)
