"""Whatever the compiled module is given that does not fit is refused before a kernel sees it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from feddst import _native

Sides = tuple[int, int, int, int, int, int]
Description = tuple[str, int, Sides, bool, bool]
Shape = tuple[int, int, int]
Floats = NDArray[np.float32]
Arrays = list[Floats | None]

ISAS = _native.supported()
POINT: Sides = (1, 1, 1, 1, 0, 0)
RELU: Description = ("relu", 0, POINT, False, True)
SOFTMAX: Description = ("softmax", 0, POINT, False, True)


def convolution(outputs: int, sides: Sides) -> Description:
    return "convolution", outputs, sides, True, True


def linear(outputs: int, bias: bool = True) -> Description:
    return "linear", outputs, POINT, bias, True


def max_pool(sides: Sides) -> Description:
    return "max_pool", 0, sides, False, True


def average_pool(sides: Sides) -> Description:
    return "average_pool", 0, sides, False, True


FLAT = _native.Network((4, 1, 1), [linear(3), RELU, linear(2, bias=False)])
"""Two layers: one with 12 weights and 3 biases, one with 6 weights."""

OTHER = _native.Network((4, 1, 1), [linear(3), linear(2, bias=False)])


def zeros(*sizes: int | None) -> Arrays:
    return [None if size is None else np.zeros(size, np.float32) for size in sizes]


WEIGHTS, BIASES = zeros(12, 6), zeros(3, None)
X, Y, ORDER = np.zeros((5, 4), np.float32), np.arange(5) % 2, np.arange(5)
RATES = (0.1, 0.9, 0.0, 0.0)


def weights() -> _native.Weights:
    return _native.Weights(_native.Structure(FLAT, [None, None]), WEIGHTS, BIASES)


NUMBERS = np.zeros((5, 2), np.float32)
"""Targets of losses that need numbers."""
ADAM = (0.9, 0.999, 1e-8)


def loaded(isa: str = ISAS[0], slots: int = 1) -> _native.Session:
    session = _native.Session(FLAT, isa)
    session.load(weights(), slots)
    return session


def unloaded() -> _native.Session:
    return _native.Session(FLAT, ISAS[0])


@pytest.mark.parametrize(
    ("message", "shape", "layers"),
    [
        ("there is no layer attention", (1, 4, 4), [("attention", 0, POINT, False, True)]),
        ("the input is empty", (0, 4, 4), [linear(2)]),
        ("the input is empty", (1, -4, 4), [linear(2)]),
        ("no layer has weights", (1, 1, 1), []),
        ("no layer has weights", (3, 1, 1), [RELU, SOFTMAX]),
        ("nothing may follow a softmax", (4, 1, 1), [linear(2), SOFTMAX, linear(2)]),
        ("nothing may follow a softmax", (4, 1, 1), [linear(2), SOFTMAX, RELU]),
        ("one row of scores", (1, 4, 4), [convolution(2, (3, 3, 1, 1, 0, 0))]),
        ("a layer has no outputs", (4, 1, 1), [linear(0)]),
        ("a layer has no outputs", (1, 4, 4), [convolution(-1, (3, 3, 1, 1, 0, 0)), linear(2)]),
        ("larger than its input", (1, 4, 4), [convolution(2, (5, 3, 1, 1, 0, 0)), linear(2)]),
        ("larger than its input", (1, 4, 4), [convolution(2, (3, 7, 1, 1, 1, 1)), linear(2)]),
        ("larger than its input", (1, 4, 4), [max_pool((3, 5, 1, 1, 0, 0)), linear(2)]),
        ("larger than its input", (1, 4, 4), [average_pool((5, 3, 1, 1, 0, 0)), linear(2)]),
        ("positive sides and strides", (1, 4, 4), [convolution(2, (0, 3, 1, 1, 0, 0)), linear(2)]),
        ("positive sides and strides", (1, 4, 4), [convolution(2, (3, 3, 0, 1, 0, 0)), linear(2)]),
        ("positive sides and strides", (1, 4, 4), [average_pool((3, 3, 1, -1, 0, 0)), linear(2)]),
        ("positive sides and strides", (1, 4, 4), [max_pool((3, 3, 1, 1, -1, 0)), linear(2)]),
        ("more than half its window", (1, 9, 9), [max_pool((3, 3, 1, 1, 2, 0)), linear(2)]),
        ("more than half its window", (1, 9, 9), [average_pool((3, 3, 1, 1, 0, 2)), linear(2)]),
        ("at most 127 rows and columns", (1, 1, 200), [max_pool((1, 128, 1, 1, 0, 0)), linear(2)]),
        ("too many weights", (2**20, 1, 1), [linear(2**12)]),
        ("too (large|many)", (2**16, 2**16, 1), [linear(1)]),
        ("too (large|many)", (1, 4, 4), [convolution(1, (1, 1, 1, 1, 2**30, 2**30)), linear(1)]),
        ("too (large|many)", (1, 4, 4), [convolution(1, (1, 1, 2**14, 2**14, 2**16, 2**16)), linear(1)]),
        ("too (large|many)", (1, 4, 4), [convolution(1, (1, 1, 2**16, 2**16, 0, 0)), linear(1)]),
    ],
)
def test_networks_that_cannot_be_are_refused(message: str, shape: Shape, layers: list[Description]) -> None:
    with pytest.raises(ValueError, match=message):
        _native.Network(shape, layers)


def masks(*sizes: int) -> list[NDArray[np.uint8]]:
    return [np.ones(size, np.uint8) for size in sizes]


def moved(
    moves: list[tuple[int, int] | None],
    room: list[NDArray[np.uint8] | None] | None = None,
    order: NDArray[np.int64] = ORDER,
    session: _native.Session | None = None,
) -> None:
    """A readjustment, with room for the first layer's mask alone unless told."""
    (session or loaded()).readjust(X, Y, order, moves, [masks(12)[0], None] if room is None else room)


def added(count: int, at: list[int] | None = None) -> None:
    """So many numbers added to a sum of five."""
    places = None if at is None else np.array(at)
    _native.add_exact(np.zeros(count, np.float32), 1.0, np.zeros(5), np.zeros(5), places)


Call = Callable[[], object]
BAD: dict[str, tuple[str, Call]] = {
    "too few masks": ("one mask, or None, is needed", lambda: _native.Structure(FLAT, [None])),
    "too many masks": ("one mask, or None, is needed", lambda: _native.Structure(FLAT, [None] * 3)),
    "too few modes": ("one mode is needed", lambda: _native.Structure(FLAT, [None, None], [True])),
    "small mask": ("a mask has another size", lambda: _native.Structure(FLAT, masks(12, 5))),
    "large mask": ("a mask has another size", lambda: _native.Structure(FLAT, masks(13, 6))),
    "unknown isa": ("no kernels are compiled for 'mmx'", lambda: _native.Session(FLAT, "mmx")),
    "no isa": ("no kernels are compiled for ''", lambda: _native.Session(FLAT, "")),
    "another network's structure": (
        "of another network",
        lambda: unloaded().load(_native.Weights(_native.Structure(OTHER, [None, None]), WEIGHTS, BIASES)),
    ),
    "too few weights": (
        "one tensor is needed",
        lambda: _native.Weights(_native.Structure(FLAT, [None, None]), zeros(12), BIASES),
    ),
    "too many biases": (
        "one tensor is needed",
        lambda: _native.Weights(_native.Structure(FLAT, [None, None]), WEIGHTS, zeros(3, None, None)),
    ),
    "no weights": (
        "a tensor is missing",
        lambda: _native.Weights(_native.Structure(FLAT, [None, None]), zeros(12, None), BIASES),
    ),
    "no bias": (
        "a tensor is missing",
        lambda: _native.Weights(_native.Structure(FLAT, [None, None]), WEIGHTS, zeros(None, None)),
    ),
    "a bias too many": (
        "one too many",
        lambda: _native.Weights(_native.Structure(FLAT, [None, None]), WEIGHTS, zeros(3, 2)),
    ),
    "small weights": (
        "a tensor has another size",
        lambda: _native.Weights(_native.Structure(FLAT, [None, None]), zeros(11, 6), BIASES),
    ),
    "large bias": (
        "a tensor has another size",
        lambda: _native.Weights(_native.Structure(FLAT, [None, None]), WEIGHTS, zeros(4, None)),
    ),
    "velocity too small": ("another size", lambda: loaded().load_slot(0, zeros(12, 5), BIASES)),
    "anchor of another structure": ("of another structure", lambda: loaded().set_anchor(weights())),
    "room too small": ("another size", lambda: loaded().store(zeros(12, 5), BIASES)),
    "room for too many": ("one too many", lambda: loaded().store(WEIGHTS, zeros(3, 2))),
    "velocity before weights": ("no weights are loaded", lambda: unloaded().load_slot(0, WEIGHTS, BIASES)),
    "anchor before weights": ("of another structure", lambda: unloaded().set_anchor(weights())),
    "packing nothing": ("no weights are loaded", lambda: unloaded().packed()),
    "storing nothing": ("no weights are loaded", lambda: unloaded().store(WEIGHTS, BIASES)),
    "training nothing": ("no weights are loaded", lambda: unloaded().train(X, Y, ORDER, [5], *RATES)),
    "gradient of nothing": (
        "no weights are loaded",
        lambda: unloaded().mean_gradient(X, Y, ORDER, 1.0, WEIGHTS, BIASES),
    ),
    "scores of nothing": ("no weights are loaded", lambda: unloaded().scores(X, np.zeros((5, 2), np.float32))),
    "too few flags": ("one flag is needed", lambda: loaded().set_trained([True], [True, True])),
    "too many flags": ("one flag is needed", lambda: loaded().set_trained([True, True], [True] * 3)),
    "images too small": ("images do not fit", lambda: loaded().train(X[:, :3].copy(), Y, ORDER, [5], *RATES)),
    "fewer images than labels": ("images do not fit", lambda: loaded().train(X[:4], Y, ORDER, [5], *RATES)),
    "fewer labels than images": ("images do not fit", lambda: loaded().train(X, Y[:4], ORDER, [5], *RATES)),
    "unknown loss": (
        "there is no loss hinge",
        lambda: loaded().train(X, Y, ORDER, [5], *RATES, loss="hinge"),
    ),
    "numbers for cross-entropy": (
        "cross-entropy needs labels, and other losses numbers",
        lambda: loaded().train(X, NUMBERS, ORDER, [5], *RATES),
    ),
    "labels for squared error": (
        "cross-entropy needs labels, and other losses numbers",
        lambda: loaded().train(X, Y, ORDER, [5], *RATES, loss="squared-error"),
    ),
    "too few numbers": (
        "the targets do not fit",
        lambda: loaded().train(X, NUMBERS[:, :1].copy(), ORDER, [5], *RATES, loss="binary"),
    ),
    "numbers of fewer images": (
        "the targets do not fit",
        lambda: loaded().train(X, NUMBERS[:4], ORDER, [5], *RATES, loss="squared-error"),
    ),
    "gradient of labels and squared error": (
        "other losses numbers",
        lambda: loaded().mean_gradient(X, Y, ORDER, 1.0, WEIGHTS, BIASES, "squared-error"),
    ),
    "readjusting by numbers and cross-entropy": (
        "other losses numbers",
        lambda: loaded().readjust(X, NUMBERS, ORDER, [None, None], [None, None]),
    ),
    "Adam without its second slot": (
        "loaded with the slots of another optimizer",
        lambda: loaded().train(X, Y, ORDER, [5], *RATES, adam=ADAM),
    ),
    "SGD with Adam's slots": (
        "loaded with the slots of another optimizer",
        lambda: loaded(slots=2).train(X, Y, ORDER, [5], *RATES),
    ),
    "SGD with decoupled decay": (
        "only Adam's decay can be decoupled",
        lambda: loaded().train(X, Y, ORDER, [5], *RATES, decoupled=True),
    ),
    "fewer steps than none": (
        "fewer steps than none were taken",
        lambda: loaded(slots=2).train(X, Y, ORDER, [5], *RATES, adam=ADAM, taken=-1),
    ),
    "no slot": ("one slot or two", lambda: loaded(slots=0)),
    "three slots": ("one slot or two", lambda: loaded(slots=3)),
    "a slot that SGD lacks": ("no such slot", lambda: loaded().load_slot(1, WEIGHTS, BIASES)),
    "a slot below zero": ("no such slot", lambda: loaded().load_slot(-1, WEIGHTS, BIASES)),
    "storing a slot that Adam lacks": ("no such slot", lambda: loaded(slots=2).store(WEIGHTS, BIASES, 2)),
    "label too large": ("a label is out of range", lambda: loaded().train(X, Y + 1, ORDER, [5], *RATES)),
    "label below zero": ("a label is out of range", lambda: loaded().train(X, Y - 1, ORDER, [5], *RATES)),
    "image too far on": ("an image is out of range", lambda: loaded().train(X, Y, ORDER + 1, [5], *RATES)),
    "image before the first": ("an image is out of range", lambda: loaded().train(X, Y, ORDER - 1, [5], *RATES)),
    "empty minibatch": ("a minibatch is empty", lambda: loaded().train(X, Y, ORDER, [5, 0], *RATES)),
    "negative minibatch": ("a minibatch is empty", lambda: loaded().train(X, Y, ORDER, [6, -1], *RATES)),
    "minibatches too small": ("do not add up", lambda: loaded().train(X, Y, ORDER, [4], *RATES)),
    "minibatches too large": ("do not add up", lambda: loaded().train(X, Y, ORDER, [5, 1], *RATES)),
    "no minibatch": ("do not add up", lambda: loaded().train(X, Y, ORDER, [], *RATES)),
    "gradient over no image": (
        "a gradient needs an image",
        lambda: loaded().mean_gradient(X, Y, ORDER[:0], 1.0, WEIGHTS, BIASES),
    ),
    "gradient of a wrong label": (
        "a label is out of range",
        lambda: loaded().mean_gradient(X, Y + 1, ORDER, 1.0, WEIGHTS, BIASES),
    ),
    "gradient of a wrong image": (
        "an image is out of range",
        lambda: loaded().mean_gradient(X, Y, ORDER + 1, 1.0, WEIGHTS, BIASES),
    ),
    "gradient without room": (
        "another size",
        lambda: loaded().mean_gradient(X, Y, ORDER, 1.0, zeros(12, 5), BIASES),
    ),
    "readjusting nothing": ("no weights are loaded", lambda: moved([(1, 1), None], session=unloaded())),
    "readjusting over no image": ("a gradient needs an image", lambda: moved([(1, 1), None], order=ORDER[:0])),
    "readjusting too few layers": ("one pair of numbers", lambda: moved([(1, 1)])),
    "readjusting without room": ("a mask is missing", lambda: moved([(1, 1), (1, 1)])),
    "readjusting with too much room": ("one too many", lambda: moved([None, None])),
    "readjusting with a small mask": ("a mask has another size", lambda: moved([(1, 1), None], [masks(11)[0], None])),
    "more leave than there are": ("fewer weights than none leave", lambda: moved([(13, 13), None])),
    "fewer than none leave": ("fewer weights than none leave", lambda: moved([(-1, 0), None])),
    "more enter than are missing": ("fewer weights than none enter", lambda: moved([(2, 3), None])),
    "fewer than none enter": ("fewer weights than none enter", lambda: moved([(2, -1), None])),
    "packing by a small mask": ("a mask has another size", lambda: loaded().packed([masks(11)[0], None])),
    "packing by too few masks": ("one mask, or None, is needed", lambda: loaded().packed([None])),
    "adding up too many": ("more or fewer than their places", lambda: added(4, at=[0, 1, 2])),
    "adding up without places": ("more or fewer than their places", lambda: added(4)),
    "adding up beyond the end": ("a place is out of range", lambda: added(2, at=[0, 5])),
    "adding up before the first": ("a place is out of range", lambda: added(2, at=[-1, 2])),
    "scores of half an image": (
        "images do not fit",
        lambda: loaded().scores(X.reshape(-1)[:6], np.zeros(2, np.float32)),
    ),
    "scores without room": ("outputs do not fit", lambda: loaded().scores(X, np.zeros((4, 2), np.float32))),
    "scores with too much room": ("outputs do not fit", lambda: loaded().scores(X, np.zeros((5, 3), np.float32))),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_calls_are_refused(name: str) -> None:
    message, call = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_refused_call_leaves_the_session_as_it_was() -> None:
    session = loaded()
    ones: Arrays = [np.ones(12, np.float32), np.ones(6, np.float32)]
    structure = _native.Structure(FLAT, masks(12, 6))
    with pytest.raises(ValueError, match="another size"):
        session.load(_native.Weights(structure, ones, zeros(4, None)))
    with pytest.raises(ValueError, match="out of range"):
        session.train(X, Y, ORDER + 1, [5], *RATES)
    weights, biases = zeros(12, 6), zeros(3, None)
    weights[0] = np.ones(12, np.float32)
    session.store(weights, biases)
    assert not any(array.any() for array in [*weights, *biases] if array is not None)


def _refusing(array: Floats) -> dict[str, Any]:
    """Arrays of the same size that cannot be written in place."""
    locked = array.copy()
    locked.flags.writeable = False
    return {
        "float64": array.astype(np.float64),
        "every other": np.repeat(array, 2, axis=-1)[..., ::2],
        "locked": locked,
    }


@pytest.mark.parametrize("how", ["float64", "every other", "locked"])
def test_results_are_never_written_to_a_copy(how: str) -> None:
    session = loaded()
    with pytest.raises(TypeError):
        session.scores(X, _refusing(np.zeros((5, 2), np.float32))[how])
    room: Arrays = [_refusing(np.zeros((3, 4), np.float32))[how], np.zeros(6, np.float32)]
    with pytest.raises(TypeError):
        session.store(room, BIASES)
    with pytest.raises(TypeError):
        session.mean_gradient(X, Y, ORDER, 1.0, room, BIASES)
