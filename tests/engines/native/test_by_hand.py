"""The compiled kernels' losses and Adam on one weight for each output: numbers that can be checked by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from feddst import _native

POINT = (1, 1, 1, 1, 0, 0)
HALVES = (0.5, 0.5, 0.0)
"""β₁, β₂ and ε of Adam."""
ISAS = _native.supported()


def session(weights: Sequence[float], isa: str, slots: int = 1) -> _native.Session:
    """A network of one input, and outputs that are its products with these weights."""
    network = _native.Network((1, 1, 1), [("linear", len(weights), POINT, False, True)])
    made = _native.Session(network, isa)
    structure = _native.Structure(network, [None])
    made.load(_native.Weights(structure, [np.array(weights, np.float32)], [None]), slots)
    made.set_trained([True], [False])
    return made


def gradient(
    weights: Sequence[float], x: float, wanted: Sequence[float], loss: str, isa: str, temperature: float = 1.0
) -> NDArray[np.float32]:
    """Of one example's loss."""
    inputs, targets = np.array([[x]], np.float32), np.array([wanted], np.float32)
    room = np.full(len(weights), np.nan, np.float32)
    session(weights, isa).mean_gradient(inputs, targets, np.arange(1), temperature, [room], [None], loss)
    return room


def loss_of(weights: Sequence[float], x: float, wanted: Sequence[float], loss: str, isa: str) -> float:
    """One example's loss."""
    inputs, targets = np.array([[x]], np.float32), np.array([wanted], np.float32)
    [found] = session(weights, isa).train(inputs, targets, np.arange(1), [1], 0.0, 0.0, 0.0, 0.0, loss)
    return found


@pytest.mark.parametrize("isa", ISAS)
def test_squared_error_is_the_mean_over_outputs(isa: str) -> None:
    """Outputs are 3·2 = 6 and −1·2 = −2, wanted 5 and 1: (1² + 3²)/2 = 5; slopes 2·1·2/2 = 2 and 2·(−3)·2/2 = −6."""
    assert loss_of([3, -1], 2, [5, 1], "squared-error", isa) == 5
    assert gradient([3, -1], 2, [5, 1], "squared-error", isa).tolist() == [2, -6]
    # Divided by 2, outputs are 3 and −1: errors −2 and −2, slopes −2·2/2 by output, and half of that by each product.
    assert gradient([3, -1], 2, [5, 1], "squared-error", isa, temperature=2).tolist() == [-2, -2]


@pytest.mark.parametrize("isa", ISAS)
def test_binary_cross_entropy_is_the_mean_over_outputs(isa: str) -> None:
    """At scores of 0 a chance is ½: log 2 whatever is wanted. The slopes (½ − y)·x/2 are 1, −1 and 0 for x = 4."""
    assert loss_of([0, 0], 4, [0, 1], "binary", isa) == pytest.approx(math.log(2), rel=1e-6)
    assert gradient([0, 0], 4, [0, 1], "binary", isa).tolist() == [1, -1]
    assert gradient([0], 4, [0.5], "binary", isa).tolist() == [0]
    score = math.log(3)  # a chance of ¾, since e^score = 3
    assert loss_of([score], 1, [1], "binary", isa) == pytest.approx(math.log(4 / 3), rel=1e-6)
    assert loss_of([-score], 1, [1], "binary", isa) == pytest.approx(math.log(4), rel=1e-6)
    assert gradient([score], 1, [1], "binary", isa)[0] == pytest.approx(-0.25, rel=1e-6)
    assert gradient([-score], 1, [1], "binary", isa)[0] == pytest.approx(-0.75, rel=1e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("score", [200.0, 3e4])
def test_binary_cross_entropy_of_large_scores_is_the_score_or_nothing(score: float, isa: str) -> None:
    for sign, wanted in ((1, 1), (-1, 0)):
        assert loss_of([sign * score], 1, [wanted], "binary", isa) == 0
        assert gradient([sign * score], 1, [wanted], "binary", isa)[0] == pytest.approx(0, abs=1e-30)
        assert loss_of([sign * score], 1, [1 - wanted], "binary", isa) == score
        assert gradient([sign * score], 1, [1 - wanted], "binary", isa)[0] == sign


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("loss", ["squared-error", "binary"])
def test_a_target_or_score_that_is_no_number_is_seen_in_the_loss(loss: str, isa: str) -> None:
    assert math.isnan(loss_of([1], 1, [math.nan], loss, isa))
    assert math.isnan(loss_of([math.nan], 1, [1], loss, isa))


@pytest.mark.parametrize("isa", ISAS)
def test_two_steps_of_adam(isa: str) -> None:
    """The loss w² has the gradient 2w.

    From w = 1: m = ½·2 = 1 and v = ½·4 = 2, made up for by 1/(1 − ½): 2 and 4, a step of ½·2/√4 = ½. From w = ½:
    m = ½·1 + ½·1 = 1 and v = ½·2 + ½·1 = 1.5, made up for by 1/(1 − ¼): 4/3 and 2, a step of ½·(4/3)/√2.
    """
    one = session([1], isa, slots=2)
    inputs, targets, order = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32), np.zeros(2, np.int64)
    losses = one.train(inputs, targets, order, [1, 1], 0.5, 0.9, 0.0, 0.0, "squared-error", HALVES)
    assert losses == pytest.approx([1, 0.25])
    weight, mean, square = (np.empty(1, np.float32) for _ in range(3))
    for room, slot in ((weight, None), (mean, 0), (square, 1)):
        one.store([room], [None], slot)
    assert [weight[0], mean[0], square[0]] == pytest.approx([0.5 - 0.5 * (4 / 3) / math.sqrt(2), 1, 1.5], abs=1e-7)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("count", [1, 3, 4, 8, 16, 33])
def test_adams_first_step_is_as_long_for_every_gradient(count: int, isa: str) -> None:
    """m̂/√v̂ is the gradient's sign; every width of vector and what is left over take it."""
    weights = np.linspace(0.5, 7, count)
    one = session(weights.tolist(), isa, slots=2)
    inputs, targets = np.ones((1, 1), np.float32), np.zeros((1, count), np.float32)
    one.train(inputs, targets, np.arange(1), [1], 0.25, 0.0, 0.0, 0.0, "squared-error", (0.9, 0.999, 1e-8))
    assert one.packed() == pytest.approx(weights - 0.25, abs=2e-6)
