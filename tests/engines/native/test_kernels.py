"""The compiled kernels against PyTorch in float64: scores, losses, gradients and steps of single layers and of chains.

Numbers come in two kinds. Real ones are drawn until no ReLU and no maximum has to decide between numbers that are
nearly the same, because rounding may decide otherwise. Whole ones, in all layers but the last, keep every sum before
the last decision exact in float32: they tie all the time, and each tie must be broken as PyTorch breaks it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from feddst import _native
from feddst.engines.native.chain import read_chain
from feddst.models import ModelConfig, network
from feddst.models.config import ModelName

Sides = tuple[int, int, int, int, int, int]
Description = tuple[str, int, Sides, bool, bool]
Shape = tuple[int, int, int]
Arrays = list[NDArray[np.float32] | None]
Floats = NDArray[np.float32]
Targets = NDArray[np.int64] | Floats
Loss = Literal["cross-entropy", "squared-error", "binary"]
LOSSES: tuple[Loss, ...] = ("cross-entropy", "squared-error", "binary")

ISAS = _native.supported()
POINT: Sides = (1, 1, 1, 1, 0, 0)
RELU: Description = ("relu", 0, POINT, False, True)
SOFTMAX: Description = ("softmax", 0, POINT, False, True)

TOLERANCE = 1e-5
"""Of the largest gradient of a tensor."""
CANCELLED = 5e-7
"""Of the largest number on the way: what may be left of numbers that cancel out. For gradients, of all tensors'."""
BETA1, BETA2, EPSILON = 0.8, 0.95, 1e-8
"""Adam's constants: other than the usual, and such that a step counts."""
CLOSE = 2e-6
"""Decisions between numbers that are closer than this share of the largest are not asked for."""


def convolution(outputs: int, *sides: int, bias: bool = True) -> Description:
    return "convolution", outputs, _sides(sides), bias, True


def linear(outputs: int, bias: bool = True) -> Description:
    return "linear", outputs, POINT, bias, True


def max_pool(*sides: int) -> Description:
    return "max_pool", 0, _sides(sides), False, True


def average_pool(*sides: int, count_padding: bool = True) -> Description:
    return "average_pool", 0, _sides(sides), False, count_padding


def _sides(given: tuple[int, ...]) -> Sides:
    """Kernel, strides and paddings, the last four 1, 1, 0 and 0 unless told."""
    rows, columns, *rest = given
    a, b, c, d = [*rest, *(1, 1, 0, 0)[len(rest) :]]
    return rows, columns, a, b, c, d


def shape_after(layer: Description, shape: Shape) -> Shape:
    kind, outputs, (rows, columns, down, right, above, left), _, _ = layer
    planes, height, width = shape
    if kind == "linear":
        return outputs, 1, 1
    if kind in ("relu", "softmax"):
        return shape
    planes = outputs if kind == "convolution" else planes
    return planes, (height + 2 * above - rows) // down + 1, (width + 2 * left - columns) // right + 1


def shapes_of(shape: Shape, layers: Sequence[Description]) -> list[Shape]:
    """What each layer is given, and what comes out at the end."""
    found = [shape]
    for layer in layers:
        found.append(shape_after(layer, found[-1]))
    return found


@dataclass(frozen=True)
class Case:
    """A chain, and how its numbers are drawn.

    `densities` of the masks, None for a layer without one; `dense` as `Structure` takes it. `uneven`: inputs of linear
    layers hold anything between no weight and all. `loss`: what is minimised.
    """

    shape: Shape
    layers: tuple[Description, ...]
    images: int
    densities: tuple[float | None, ...]
    dense: tuple[bool, ...] | None = None
    whole: bool = False
    seed: int = 0
    uneven: bool = False
    loss: Loss = "cross-entropy"

    @property
    def weight_shapes(self) -> list[tuple[int, ...]]:
        given = shapes_of(self.shape, self.layers)
        return [
            (outputs, math.prod(before)) if kind == "linear" else (outputs, before[0], *sides[:2])
            for (kind, outputs, sides, _, _), before in zip(self.layers, given, strict=False)
            if kind in ("convolution", "linear")
        ]

    @property
    def biased(self) -> list[bool]:
        return [bias for kind, _, _, bias, _ in self.layers if kind in ("convolution", "linear")]

    @property
    def classes(self) -> int:
        return shapes_of(self.shape, self.layers)[-1][0]


class Oracle:
    """The chain in PyTorch and float64. `narrowest` is the closest that two numbers came which were not the same."""

    def __init__(self, case: Case, weights: Arrays, biases: Arrays) -> None:
        self.case = case
        self.weights = [torch.from_numpy(w).double().requires_grad_() for w in weights if w is not None]
        self.biases = [None if b is None else torch.from_numpy(b).double().requires_grad_() for b in biases]
        self.narrowest = math.inf
        self.largest = 0.0

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.weights, *(bias for bias in self.biases if bias is not None)]

    def outputs(self, inputs: Tensor) -> Tensor:
        x = inputs.double().reshape(-1, *self.case.shape)
        numbers, averaged = iter(zip(self.weights, self.biases, strict=True)), False
        for kind, _, (rows, columns, down, right, above, left), _, count_padding in self.case.layers:
            self.largest = max(self.largest, float(x.detach().abs().max()))
            window = (rows, columns), (down, right), (above, left)
            if kind == "convolution":
                weight, bias = next(numbers)
                x = F.conv2d(x, weight, bias, *window[1:])
            elif kind == "linear":
                weight, bias = next(numbers)
                x = F.linear(x.flatten(1), weight, bias)[:, :, None, None]
            elif kind == "relu":
                self._decide(x.detach().abs().flatten(), x)
                x = F.relu(x)
            elif kind == "max_pool":
                padded = F.pad(x.detach(), (left, left, above, above), value=-math.inf)
                parts = padded.unfold(2, rows, down).unfold(3, columns, right).flatten(4)
                self._decide((parts.amax(4, keepdim=True) - parts).flatten(), x)
                if averaged:
                    self._refuse_ties(parts)
                x = F.max_pool2d(x, *window)
            elif kind == "average_pool":
                averaged = True
                x = F.avg_pool2d(x, *window, count_include_pad=count_padding)
            else:
                x = F.softmax(x, dim=1)
        return x.flatten(1)

    def _refuse_ties(self, parts: Tensor) -> None:
        """Two means of the same numbers may be equal here and not in float32, where they are added in another order."""
        largest = parts.amax(4, keepdim=True)
        tied = ((parts == largest).sum(4, keepdim=True) > 1) & (largest != 0)
        if bool(tied.any()):
            self.narrowest = 0.0

    def _decide(self, gaps: Tensor, x: Tensor) -> None:
        apart = gaps[(gaps > 0) & gaps.isfinite()]
        if len(apart):
            self.narrowest = min(self.narrowest, float(apart.min() / x.detach().abs().max()))

    def loss(self, inputs: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
        outputs = self.outputs(inputs) / temperature
        if self.case.loss == "cross-entropy":
            return F.cross_entropy(outputs, targets)
        of = F.mse_loss if self.case.loss == "squared-error" else F.binary_cross_entropy_with_logits
        return of(outputs, targets.double())

    def gradients(self, inputs: Tensor, targets: Tensor, temperature: float = 1.0) -> list[NDArray[np.float64]]:
        """Of all weights, then of all biases."""
        loss = self.loss(inputs, targets, temperature)
        found = torch.autograd.grad(loss, self.parameters, materialize_grads=True, allow_unused=True)
        return [gradient.numpy() for gradient in found]


@dataclass
class Numbers:
    """A case's numbers. Masks are bytes; weights are 0 where they say so."""

    masks: list[NDArray[np.uint8] | None]
    weights: Arrays
    biases: Arrays
    inputs: Floats
    targets: Targets

    def tensors(self) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self.inputs), torch.from_numpy(self.targets)


def draw_numbers(case: Case, draws: np.random.Generator) -> Numbers:
    last = len(case.densities) - 1

    def drawn(layer: int, shape: tuple[int, ...], size: float) -> Floats:
        if case.whole and layer < last:
            return draws.integers(-1, 2, shape).astype(np.float32)
        return (draws.standard_normal(shape) * size).astype(np.float32)

    masks: list[NDArray[np.uint8] | None] = []
    weights: Arrays = []
    for i, (shape, density) in enumerate(zip(case.weight_shapes, case.densities, strict=True)):
        chance = draws.random(shape[1]) if case.uneven and len(shape) == 2 else np.float64(density or 0.0)
        mask = None if density is None else (draws.random(shape) < chance).astype(np.uint8)
        active = max(1.0, math.prod(shape[1:]) * (1.0 if density is None else density))
        weight = drawn(i, shape, 1.4 / math.sqrt(active))
        masks.append(mask)
        weights.append(weight if mask is None else weight * mask)
    biases: Arrays = [
        drawn(i, (shape[0],), 0.3) if bias else None
        for i, (shape, bias) in enumerate(zip(case.weight_shapes, case.biased, strict=True))
    ]
    inputs = draws.integers(-2, 3, (case.images, *case.shape)).astype(np.float32)
    if not case.whole:
        inputs = draws.standard_normal((case.images, *case.shape)).astype(np.float32)
    return Numbers(masks, weights, biases, inputs, draw_targets(case, draws))


def draw_targets(case: Case, draws: np.random.Generator) -> Targets:
    if case.loss == "cross-entropy":
        return draws.integers(0, case.classes, case.images)
    if case.loss == "squared-error":
        return draws.standard_normal((case.images, case.classes)).astype(np.float32)
    return draws.choice([0.0, 0.0, 1.0, 1.0, 0.3], (case.images, case.classes)).astype(np.float32)


def wrong_targets(case: Case, targets: Tensor) -> Tensor:
    """As far from these as targets may be."""
    if case.loss == "cross-entropy":
        return (targets + 1) % case.classes
    return targets + 1 if case.loss == "squared-error" else 1 - targets


def numbers_of(case: Case, sound: Callable[[Oracle, Numbers], object] | None = None) -> Numbers:
    """The first numbers that `sound`, by default the oracle's forward pass, can go through without a close decision."""
    draws = np.random.default_rng(case.seed)
    for _ in range(30):
        numbers = draw_numbers(case, draws)
        oracle = Oracle(case, numbers.weights, numbers.biases)
        outputs = oracle.outputs(numbers.tensors()[0]).detach()
        if case.whole:
            _scale_down(case, numbers, outputs)
            if oracle.largest < 2**19:
                return numbers
            continue
        if sound is not None:
            sound(oracle, numbers)
        if oracle.narrowest > CLOSE:
            return numbers
    return reject()  # some chains take the same numbers together in another order, and then the largest of them


def _scale_down(case: Case, numbers: Numbers, outputs: Tensor) -> None:
    """Take the last layer with weights down by a power of two, so that no score dwarfs the others."""
    if case.layers[-1] == SOFTMAX:
        scores = replace(case, layers=case.layers[:-1])
        outputs = Oracle(scores, numbers.weights, numbers.biases).outputs(numbers.tensors()[0]).detach()
    factor = np.float32(2.0 ** -max(0, math.ceil(math.log2(max(1.0, float(outputs.abs().max()))))))
    for tensors in (numbers.weights, numbers.biases):
        last = tensors[-1]
        tensors[-1] = None if last is None else last * factor


@dataclass
class Native:
    """The same chain in a session."""

    case: Case
    network: _native.Network
    session: _native.Session

    @classmethod
    def of(cls, case: Case, numbers: Numbers, isa: str, slots: int = 1) -> "Native":
        network = _native.Network(case.shape, case.layers)
        native = cls(case, network, _native.Session(network, isa))
        native.load(case, numbers, slots)
        return native

    def load(self, case: Case, numbers: Numbers, slots: int = 1) -> None:
        self.case = case
        self.structure = _native.Structure(self.network, numbers.masks, case.dense)
        self.session.load(_native.Weights(self.structure, numbers.weights, numbers.biases), slots)

    def pull_to(self, weights: Arrays, biases: Arrays) -> None:
        """Give the proximal term its anchor."""
        self.session.set_anchor(_native.Weights(self.structure, weights, biases))

    def empty(self) -> tuple[Arrays, Arrays]:
        """Room for weights and biases, with something in it that must be overwritten."""
        weights: Arrays = [np.full(shape, np.nan, dtype=np.float32) for shape in self.case.weight_shapes]
        biases: Arrays = [
            np.full(shape[0], np.nan, dtype=np.float32) if bias else None
            for shape, bias in zip(self.case.weight_shapes, self.case.biased, strict=True)
        ]
        return weights, biases

    def scores(self, inputs: Floats) -> Floats:
        outputs = np.full((len(inputs), self.case.classes), np.nan, dtype=np.float32)
        self.session.scores(inputs, outputs)
        return outputs

    def gradients(self, numbers: Numbers, temperature: float = 1.0) -> list[Floats]:
        weights, biases = self.empty()
        order = np.arange(len(numbers.targets))
        self.session.mean_gradient(numbers.inputs, numbers.targets, order, temperature, weights, biases, self.case.loss)
        return _there(weights, biases)

    def stored(self, slot: int | None = None) -> list[Floats]:
        weights, biases = self.empty()
        self.session.store(weights, biases, slot)
        return _there(weights, biases)


def _there(weights: Arrays, biases: Arrays) -> list[Floats]:
    return [array for array in [*weights, *biases] if array is not None]


def largest(arrays: Sequence[NDArray[np.float64]]) -> float:
    return max(float(np.abs(array).max()) for array in arrays)


def assert_near(
    found: Sequence[Floats], expected: Sequence[NDArray[np.float64]], gross: float, tolerance: float = TOLERANCE
) -> None:
    """Each tensor is right to `tolerance` of its largest number, or as far as numbers as large as `gross` cancelled."""
    for i, (array, right) in enumerate(zip(found, expected, strict=True)):
        assert array.shape == right.shape
        error, most = np.abs(array - right).max(), np.abs(right).max()
        limit = tolerance * most + CANCELLED * gross
        assert error <= limit, f"tensor {i} is off by {error:.3g}, its largest number is {most:.3g}"


def gross_gradient(case: Case, numbers: Numbers, temperature: float) -> float:
    """How large gradients are before they cancel out: those of scores, or of a few images, each alone and mislabelled.

    Without the softmax, in which they may cancel too.
    """
    layers = case.layers[:-1] if case.layers[-1] == SOFTMAX else case.layers
    oracle = Oracle(replace(case, layers=layers), numbers.weights, numbers.biases)
    inputs, targets = numbers.tensors()
    wrong = wrong_targets(case, targets)
    some = range(min(4, case.images))
    alone = [largest(oracle.gradients(inputs[i : i + 1], wrong[i : i + 1], temperature)) for i in some]
    share = 0.5 if case.loss == "cross-entropy" else 0.5 / case.classes
    return max(share / temperature, *alone)


def check(case: Case, temperature: float = 1.0) -> None:
    """Scores and gradients, twice over: nothing of the first pass may be left when the second begins."""
    numbers = numbers_of(case)
    oracle = Oracle(case, numbers.weights, numbers.biases)
    inputs, targets = numbers.tensors()
    outputs = oracle.outputs(inputs).detach().numpy()
    gradients = oracle.gradients(inputs, targets, temperature)
    gross = max(largest(gradients), gross_gradient(case, numbers, temperature))
    for isa in ISAS:
        native = Native.of(case, numbers, isa)
        for _ in range(2):
            assert_near([native.scores(numbers.inputs)], [outputs], oracle.largest)
            assert_near(native.gradients(numbers, temperature), gradients, gross)


# Chains that fit together, with all that may vary.

DENSITIES = st.one_of(st.none(), st.sampled_from([0.0, 1.0]), st.floats(0.05, 0.95))


@st.composite
def windows(draw: st.DrawFn, shape: Shape, *, pool: bool, exact: bool = False) -> Sides:
    """A window that fits into the planes of `shape`; `exact`: over 1, 2, 4 or 16 pixels and without padding."""
    kernel, strides, pads = [], [], []
    for size in shape[1:]:
        if pool:
            sizes = (1, 2, 4) if exact else (1, 2, 3, 4, 5)
            side = draw(st.sampled_from([n for n in sizes if n <= size]))
            pad = 0 if exact else draw(st.integers(0, min(2, side // 2)))
        else:
            pad = draw(st.integers(0, 2))
            side = draw(st.integers(1, min(5, size + 2 * pad)))
        kernel.append(side)
        strides.append(draw(st.integers(1, 3)))
        pads.append(pad)
    return kernel[0], kernel[1], strides[0], strides[1], pads[0], pads[1]


@st.composite
def chains(draw: st.DrawFn, shape: Shape, *, whole: bool) -> tuple[Description, ...]:
    layers: list[Description] = []
    for kind in draw(st.lists(st.sampled_from(["convolution", "max_pool", "average_pool", "relu"]), max_size=5)):
        if kind == "relu":
            layers.append(RELU)
        elif kind == "convolution":
            sides = draw(windows(shape, pool=False))
            layers.append((kind, draw(st.integers(1, 6)), sides, draw(st.booleans()), True))
        else:
            sides = draw(windows(shape, pool=True, exact=whole and kind == "average_pool"))
            layers.append((kind, 0, sides, False, draw(st.booleans())))
        shape = shape_after(layers[-1], shape)
    end = draw(st.sampled_from(["linear", "linear", "convolution", "average_pool"]))
    whole_plane = (shape[1], shape[2], 1, 1, 0, 0)
    if end == "average_pool" and not whole and any(layer[0] == "convolution" for layer in layers):
        layers.append((end, 0, whole_plane, False, True))
    elif end == "convolution":
        layers.append((end, draw(st.integers(1, 12)), whole_plane, draw(st.booleans()), True))
    else:
        for _ in range(draw(st.integers(0, 2))):
            layers.append(linear(draw(st.integers(1, 40)), draw(st.booleans())))
            if draw(st.booleans()):
                layers.append(RELU)
        layers.append(linear(draw(st.integers(1, 20)), draw(st.booleans())))
    # The last weights of whole numbers are real ones, so that gradients do not cancel; no decision may come after them.
    return (*layers, *draw(st.sampled_from([(), (), (SOFTMAX,) if whole else (RELU,), (SOFTMAX,)])))


@st.composite
def cases(draw: st.DrawFn, *, whole: bool = False) -> Case:
    shape = draw(st.integers(1, 4)), draw(st.integers(1, 9)), draw(st.integers(1, 22))
    layers = draw(chains(shape, whole=whole))
    weighted = sum(kind in ("convolution", "linear") for kind, *_ in layers)
    densities = tuple(draw(DENSITIES) for _ in range(weighted))
    dense = draw(st.none() | st.lists(st.booleans(), min_size=weighted, max_size=weighted).map(tuple))
    images, seed, loss = draw(st.integers(1, 70)), draw(st.integers(0, 2**32)), draw(st.sampled_from(LOSSES))
    return Case(shape, layers, images, densities, dense, whole, seed, loss=loss)


@given(cases(), st.sampled_from([1.0, 1.0, 0.5, 200.0]))
@settings(max_examples=100)
def test_chains_have_the_scores_and_gradients_that_torch_has(case: Case, temperature: float) -> None:
    check(case, temperature)


@given(cases(whole=True))
@settings(max_examples=100)
def test_ties_are_broken_as_torch_breaks_them(case: Case) -> None:
    check(case)


# Every geometry once, between two layers so that gradients go through it.


def through(*middle: Description, size: tuple[int, int] = (6, 9), whole: bool = False, **changes: object) -> Case:
    """A pointwise convolution, then `middle`, then a linear layer; all weights but those of the first masked."""
    shape: Shape = (2, *size)
    layers = (convolution(3, 1, 1), *middle, linear(4))
    weighted = sum(kind in ("convolution", "linear") for kind, *_ in layers)
    case = Case(shape, layers, 11, (None, *[0.5] * (weighted - 1)), whole=whole)
    return replace(case, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["sparse", "dense", "chosen"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_convolutions_of_every_kernel_stride_and_padding(mode: str, stride: int, padding: int) -> None:
    dense = {"sparse": (False,) * 3, "dense": (True,) * 3, "chosen": None}[mode]
    for rows in range(1, 6):
        columns, across, beside = 1 + (rows + stride + padding) % 5, 1 + (stride + rows) % 3, (padding + rows) % 3
        sides = (rows, columns, stride, across, padding, beside)
        check(through(convolution(5, *sides, bias=rows % 2 == 0), RELU, dense=dense, seed=rows))


POOLS = [
    (rows, columns, stride, 1 + (stride + columns) % 3, padding, min(columns // 2, (padding + rows) % 3))
    for rows in range(1, 6)
    for columns in (1 + rows % 5, 3)
    for stride in (1, 2, 3)
    for padding in range(min(rows // 2, 2) + 1)
]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("relu", ["none", "before", "after", "both"])
def test_maxima_of_every_window_with_relu_on_either_side(relu: str, whole: bool) -> None:
    before, after = [RELU] * (relu in ("before", "both")), [RELU] * (relu in ("after", "both"))
    for sides in POOLS[relu == "both" :: 2]:
        check(through(*before, max_pool(*sides), *after, whole=whole))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("relu", [[], [RELU]])
def test_maxima_of_windows_that_slide_by_one_pixel(relu: list[Description], whole: bool) -> None:
    for height, width, images in ((3, 3, 8), (3, 4, 40), (4, 5, 20), (5, 6, 5), (9, 12, 48)):
        check(through(max_pool(3, 3), *relu, size=(height, width), images=images, whole=whole))


@pytest.mark.parametrize("count_padding", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_averages_of_every_window(count_padding: bool, relu: bool) -> None:
    for sides in POOLS[relu::2]:
        check(through(*[RELU] * relu, average_pool(*sides, count_padding=count_padding), *[RELU] * relu))


def test_the_widest_maximum_that_a_byte_can_name() -> None:
    for rows, columns in ((127, 1), (1, 127), (100, 3)):
        check(through(max_pool(rows, columns), size=(rows + 1, columns + 2), whole=True))


@pytest.mark.parametrize("inputs", [1, 255, 256, 257, 600])
@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 1.0])
def test_linear_layers_of_odd_sizes(inputs: int, density: float) -> None:
    for outputs, images, dense in ((1, 9, None), (17, 40, (False, False)), (70, 33, (True, False))):
        layers = (linear(outputs, bias=inputs % 2 == 0), RELU, linear(3))
        check(Case((inputs, 1, 1), layers, images, (density, 0.9), dense))


@pytest.mark.parametrize("images", [*range(1, 18), 31, 32, 33, 63, 64, 65, 70])
def test_any_number_of_images_fits_into_blocks(images: int) -> None:
    check(through(convolution(4, 3, 3), max_pool(3, 3), RELU, images=images, seed=images))


@pytest.mark.parametrize(
    ("name", "head"), [("mnist-cnn", "logits"), ("cifar10-cnn", "softmax"), ("cifar100-cnn", "logits")]
)
def test_the_papers_networks(name: ModelName, head: Literal["logits", "softmax"]) -> None:
    shape = (1, 28, 28) if name == "mnist-cnn" else (3, 32, 32)
    classes = 100 if name == "cifar100-cnn" else 10
    chain = read_chain(network(ModelConfig(name=name, head=head), shape, classes), shape)
    densities = (None, 0.3, 0.2, 0.2, 0.9)[: len(chain.weights) - 1]
    check(Case(chain.shape, chain.layers, 20, (*densities, 0.9), whole=True), temperature=2.0)


# SGD and Adam.


@dataclass(frozen=True)
class Plan:
    """Some steps, on minibatches of these sizes. `trained` for each weight tensor, then for each bias.

    With `adam`, they come after `taken` others, and `decoupled` decay is no part of the gradient.
    """

    case: Case
    sizes: tuple[int, ...]
    rate: float
    momentum: float
    decay: float
    proximal: float
    trained: tuple[bool, ...]
    adam: bool = False
    taken: int = 0
    decoupled: bool = False

    @property
    def slots(self) -> int:
        return 2 if self.adam else 1

    @property
    def options(self) -> tuple[Any, ...]:
        """What `train` is told after the minibatches."""
        rates = self.rate, self.momentum, self.decay, self.proximal, self.case.loss
        return (*rates, (BETA1, BETA2, EPSILON), self.taken, self.decoupled) if self.adam else rates


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    case = draw(cases())
    biased = case.biased
    trained = st.lists(st.sampled_from([True, True, False]), min_size=2 * len(biased), max_size=2 * len(biased))
    return Plan(
        case,
        sizes=tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))),
        rate=draw(st.sampled_from([0.02, 0.002])),
        momentum=draw(st.sampled_from([0.0, 0.9])),
        decay=draw(st.sampled_from([0.0, 0.01])),
        proximal=draw(st.sampled_from([0.0, 0.5])),
        trained=tuple(draw(trained)) if draw(st.booleans()) else (True,) * (2 * len(biased)),
        adam=draw(st.booleans()),
        taken=draw(st.sampled_from([0, 1, 50])),
        decoupled=draw(st.booleans()),
    )


@dataclass
class Start:
    """What a plan begins with beside the numbers of its case: for each weight tensor, then for each bias.

    No mean of squares is close to 0: Adam would make a large step of what rounding has left of a gradient.
    """

    order: NDArray[np.int64]
    slots: list[tuple[Arrays, Arrays]]
    anchor: tuple[Arrays, Arrays]

    @classmethod
    def of(cls, plan: Plan, numbers: Numbers) -> "Start":
        draws = np.random.default_rng(plan.case.seed + 1)

        def near(arrays: Arrays, size: float, masks: Sequence[NDArray[np.uint8] | None] | None) -> Arrays:
            found: Arrays = []
            for i, array in enumerate(arrays):
                noise = None if array is None else (draws.standard_normal(array.shape) * 0.1).astype(np.float32)
                mask = None if masks is None else masks[i]
                moved = None if array is None or noise is None else array * np.float32(size) + noise
                found.append(moved if moved is None or mask is None else moved * mask)
            return found

        def both(size: float) -> tuple[Arrays, Arrays]:
            return near(numbers.weights, size, numbers.masks), near(numbers.biases, size, None)

        order, first, anchor = draws.integers(0, plan.case.images, sum(plan.sizes)), both(0.0), both(1.0)
        weights, biases = both(0.0)
        return cls(order, [first, (_squares(weights), _squares(biases))][: plan.slots], anchor)


def _squares(arrays: Arrays) -> Arrays:
    """Means of squares, 0 where the given numbers are."""
    return [None if one is None else np.where(one == 0, 0, 0.2 + one**2).astype(np.float32) for one in arrays]


def steps_of_torch(
    oracle: Oracle, numbers: Numbers, plan: Plan
) -> tuple[list[float], list[NDArray[np.float64]], list[list[NDArray[np.float64]]]]:
    """The sum of the images' losses for each step, and what becomes of parameters and slots."""
    start = Start.of(plan, numbers)
    inputs, targets = numbers.tensors()
    theta = oracle.parameters
    slots = [[torch.from_numpy(value).double() for value in _there(*slot)] for slot in start.slots]
    anchor = [torch.from_numpy(a).double() for a in _there(*start.anchor)]
    masks = [None if mask is None else torch.from_numpy(mask).double() for mask in numbers.masks]
    biased = plan.case.biased
    trained = [
        *plan.trained[: len(biased)],
        *(t for t, b in zip(plan.trained[len(biased) :], biased, strict=True) if b),
    ]
    losses = []
    for t, part in enumerate(np.split(start.order, np.cumsum(plan.sizes)[:-1]), plan.taken + 1):
        loss = oracle.loss(inputs[part], targets[part])
        losses.append(float(loss.detach()) * len(part))
        gradients = torch.autograd.grad(loss, theta, materialize_grads=True, allow_unused=True)
        with torch.no_grad():
            for i, gradient in enumerate(gradients):
                decay = 0 if plan.adam and plan.decoupled else plan.decay
                step = gradient + decay * theta[i] + plan.proximal * (theta[i] - anchor[i])
                mask = masks[i] if i < len(masks) else None
                step = step if mask is None else step * mask
                if trained[i] and plan.adam:
                    mean, square = slots[0][i], slots[1][i]
                    mean += (1 - BETA1) * (step - mean)
                    square += (1 - BETA2) * (step**2 - square)
                    theta[i] *= 1 - plan.rate * plan.decay * plan.decoupled
                    theta[i] -= plan.rate * (mean / (1 - BETA1**t)) / ((square / (1 - BETA2**t)).sqrt() + EPSILON)
                elif trained[i]:
                    slots[0][i] = plan.momentum * slots[0][i] + step
                    theta[i] -= plan.rate * slots[0][i]
    return losses, [one.detach().numpy() for one in theta], [[value.numpy() for value in slot] for slot in slots]


def check_training(plan: Plan) -> None:
    """Losses, weights and slots after some steps."""
    case, layers = plan.case, len(plan.case.biased)
    numbers = numbers_of(case, lambda oracle, numbers: steps_of_torch(oracle, numbers, plan))
    start = Start.of(plan, numbers)
    oracle = Oracle(case, numbers.weights, numbers.biases)
    losses, theta, slots = steps_of_torch(oracle, numbers, plan)
    before, slots_before = _there(numbers.weights, numbers.biases), [_there(*slot) for slot in start.slots]
    gross = max(largest(slots[0]), gross_gradient(case, numbers, temperature=1.0))
    for isa in ISAS:
        native = Native.of(case, numbers, isa, plan.slots)
        for number, slot in enumerate(start.slots):
            native.session.load_slot(number, *slot)
        native.pull_to(*start.anchor)
        native.session.set_trained(plan.trained[:layers], plan.trained[layers:])
        found = native.session.train(numbers.inputs, numbers.targets, start.order, plan.sizes, *plan.options)
        assert found == pytest.approx(losses, rel=2e-5, abs=4e-5)
        after, slots_after = native.stored(), [native.stored(slot) for slot in range(plan.slots)]
        for i, (one, right) in enumerate(zip(after, theta, strict=True)):
            rounding = 3e-7 * np.abs(right).max()
            moved = one.astype(np.float64) - before[i], right - before[i]
            assert np.abs(moved[0] - moved[1]).max() <= TOLERANCE * np.abs(moved[1]).max() + rounding
        for slot_after, right_slot, size in zip(slots_after, slots, (gross, gross**2), strict=False):
            assert_near(slot_after, right_slot, size, 2 * TOLERANCE)
        for i, mask in enumerate(numbers.masks):
            if mask is not None:
                assert not any(tensors[i][mask == 0].any() for tensors in (after, *slots_after))
        still = [*plan.trained[:layers], *(t for t, b in zip(plan.trained[layers:], case.biased, strict=True) if b)]
        for i, moves in enumerate(still):
            if not moves:
                assert np.array_equal(after[i], before[i])
                for slot_after, slot_before in zip(slots_after, slots_before, strict=True):
                    assert np.array_equal(slot_after[i], slot_before[i])


@given(plans())
@settings(max_examples=100)
def test_training_is_sgd_or_adam_with_decay_and_proximal_term_on_active_weights(plan: Plan) -> None:
    check_training(plan)


# Inputs in groups of four, weights in blocks of sixteen, steps of four, and alone; the last inputs in no group.
@pytest.mark.parametrize("inputs", [1, 4, 7, 258, 600])
@pytest.mark.parametrize("outputs", [1, 5, 33])
def test_linear_layers_are_trained_however_many_weights_their_inputs_hold(inputs: int, outputs: int) -> None:
    for density, uneven in ((0.5, True), (0.3, False), (1.0, False)):
        for shape, layers in (
            ((inputs, 1, 1), (linear(outputs), RELU, linear(3))),
            ((2, 1, 1), (linear(inputs, bias=False), linear(outputs), RELU, linear(3))),
        ):
            weighted = len(layers) - 1
            case = Case(shape, layers, 40, (density,) * weighted, (False,) * weighted, seed=inputs, uneven=uneven)
            plan = Plan(case, (32, 8, 17, 3), 0.02, 0.9, 0.01, 0.5 * uneven, (True,) * (2 * weighted))
            check_training(plan)
            check_training(replace(plan, adam=True))


@given(cases())
@settings(max_examples=60)
def test_packed_weights_are_the_active_ones_by_place_each_layer_followed_by_its_biases(case: Case) -> None:
    numbers = draw_numbers(case, np.random.default_rng(case.seed))
    native = Native.of(case, numbers, ISAS[0])
    kept, expected = [], []
    for weights, mask, bias in zip(numbers.weights, numbers.masks, numbers.biases, strict=True):
        assert weights is not None
        kept.append(np.ones(weights.size, bool) if mask is None else mask.reshape(-1) != 0)
        expected += [weights.reshape(-1)[kept[-1]], np.zeros(0, np.float32) if bias is None else bias]
    assert np.array_equal(native.session.packed(), np.concatenate(expected))
    assert native.structure.active == [int(mask.sum()) for mask in kept]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("adam", [None, (0.9, 0.999, 1e-8)])
def test_steps_one_by_one_are_steps_in_one_call(isa: str, dense: bool, adam: tuple[float, float, float] | None) -> None:
    case = through(convolution(4, 3, 3, 1, 1, 1, 1), RELU, max_pool(2, 2, 2, 2), dense=(dense,) * 3, images=50)
    numbers = numbers_of(case)
    order, sizes = np.random.default_rng(5).permutation(50), [20, 1, 29]
    options = (0.1, 0.9, 0.01, 0.0, case.loss, adam)
    together, apart = (Native.of(case, numbers, isa, slots=1 if adam is None else 2) for _ in range(2))
    losses = together.session.train(numbers.inputs, numbers.targets, order, sizes, *options)
    parts = np.split(order, np.cumsum(sizes)[:-1])
    assert losses == [
        loss
        for taken, part in enumerate(parts)
        for loss in apart.session.train(numbers.inputs, numbers.targets, part, [len(part)], *options, taken=taken)
    ]
    for one, two in zip(together.stored(), apart.stored(), strict=True):
        assert np.array_equal(one, two)


@given(cases(), cases(), st.data())
@settings(max_examples=40)
def test_a_session_remembers_nothing_of_the_weights_it_had_before(case: Case, other: Case, data: st.DataObject) -> None:
    """Other masks, other modes and another number of images: bit for bit what a new session makes of them."""
    weighted = len(case.densities)
    second = replace(
        case,
        images=other.images,
        densities=tuple(data.draw(DENSITIES) for _ in range(weighted)),
        dense=data.draw(st.none() | st.lists(st.booleans(), min_size=weighted, max_size=weighted).map(tuple)),
        loss=other.loss,
    )
    before, after = (replace(data.draw(plans()), case=one) for one in (case, second))
    draws = np.random.default_rng(case.seed)
    first_numbers, numbers = draw_numbers(case, draws), draw_numbers(second, draws)
    for isa in ISAS:
        used = Native.of(case, first_numbers, isa, before.slots)
        fresh = Native.of(second, numbers, isa, after.slots)
        images = case.images
        used.pull_to(first_numbers.weights, first_numbers.biases)
        used.session.train(first_numbers.inputs, first_numbers.targets, np.arange(images), [images], *before.options)
        used.gradients(first_numbers)
        used.load(second, numbers, after.slots)
        order = np.arange(second.images)
        for _ in range(2):
            results = []
            for native in (used, fresh):
                losses = native.session.train(numbers.inputs, numbers.targets, order, [second.images], *after.options)
                found = [native.scores(numbers.inputs), *native.gradients(numbers), *native.stored()]
                slots = [array for slot in range(after.slots) for array in native.stored(slot)]
                results.append([np.array(losses), *found, *slots])
            assert all(np.array_equal(one, two) for one, two in zip(*results, strict=True))


@pytest.mark.parametrize("isa", ISAS)
def test_modes_are_chosen_by_density_and_kept_where_they_are_forced(isa: str) -> None:
    network = _native.Network((1, 6, 6), [convolution(4, 3, 3), linear(5)])
    few, many = [np.zeros(36, np.uint8), np.zeros(320, np.uint8)], [np.ones(36, np.uint8), np.ones(320, np.uint8)]
    assert _native.Structure(network, few).dense == [False, False]
    assert _native.Structure(network, many).dense == [True, True]
    assert _native.Structure(network, [None, few[1]]).dense == [True, False]
    assert _native.Structure(network, few, [True, False]).dense == [True, False]
    assert _native.Structure(network, many, [False, True]).dense == [False, True]


@pytest.mark.parametrize("isa", ISAS)
def test_a_network_without_an_active_weight_gives_its_biases(isa: str) -> None:
    case = through(convolution(4, 3, 3, 1, 1, 1, 1), RELU, densities=(0.0, 0.0, 0.0))
    numbers = numbers_of(case)
    native = Native.of(case, numbers, isa)
    assert np.array_equal(native.scores(numbers.inputs), np.tile(numbers.biases[-1], (11, 1)))  # type: ignore[arg-type]
    native.session.train(numbers.inputs, numbers.targets, np.arange(11), [11], 0.1, 0.9, 0.01, 0.0)
    assert all(not weight.any() for weight in native.stored()[:3])
    assert all(not velocity.any() for velocity in native.stored(slot=0)[:3])
    assert not np.array_equal(native.stored()[-1], numbers.biases[-1])  # type: ignore[arg-type]


def test_no_images_have_no_scores() -> None:
    case = through(convolution(4, 3, 3))
    native = Native.of(case, numbers_of(case), ISAS[0])
    assert native.scores(np.zeros((0, *case.shape), np.float32)).shape == (0, 4)
