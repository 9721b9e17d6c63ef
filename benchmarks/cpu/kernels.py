"""Layers through the kernels that go over active weights, and through those that go over all: who is faster, when."""

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.wire.updates import SHAPES, NetworkName
from feddst.core import generator
from feddst.engines.native.chain import read_chain
from feddst.engines.native.library import chosen_isa
from feddst.models import ModelConfig, network
from feddst.stopwatch import Timing, timed

if TYPE_CHECKING:
    from feddst import _native

LAYERS: tuple[tuple[NetworkName, str], ...] = (
    ("mnist-cnn", "conv2"),
    ("mnist-cnn", "fc1"),
    ("cifar10-cnn", "conv2"),
    ("cifar10-cnn", "fc1"),
)
DENSITIES = tuple(tenths / 10 for tenths in range(1, 11))
BATCHES = (32, 8)
"""Images in a step: the two sizes of minibatch that 40 images make."""

_WHOLE = 100


@dataclass(frozen=True)
class KernelRow:
    """A layer at a density: one step of SGD on so many images, with either kind of kernel.

    `rest` is the same step with a single weight in the layer: what is not the layer's own.
    """

    network: str
    layer: str
    images: int
    density: float
    sparse: Timing
    dense: Timing
    rest: Timing

    @property
    def own(self) -> tuple[float, float]:
        """Seconds that the layer itself takes with sparse and with dense kernels, from the shortest of each."""
        return self.sparse.shortest - self.rest.shortest, self.dense.shortest - self.rest.shortest

    @property
    def ratio(self) -> float:
        """The layer's own time with sparse kernels to that with dense ones; infinite if the latter is too short."""
        sparse, dense = self.own
        return sparse / dense if dense > 0 else math.inf


@dataclass(frozen=True)
class CrossingRow:
    """From which density on the dense kernels are faster, None if never, and from which the engine takes them."""

    network: str
    layer: str
    images: int
    crossing: float | None
    taken_from: float


def kernel_rows(turns: int, repeats: int, seed: int) -> Iterator[KernelRow]:
    """Every layer with every number of images at every density."""
    for name, layer in LAYERS:
        stand = _Stand(name, layer, seed)
        for images in BATCHES:
            yield from (stand.row(images, density, turns, repeats) for density in DENSITIES)


def crossing_rows(rows: Sequence[KernelRow], seed: int) -> list[CrossingRow]:
    """Where the times of each layer cross, for each number of images."""
    found: list[CrossingRow] = []
    for name, layer in LAYERS:
        taken_from = _Stand(name, layer, seed).taken_from()
        for images in BATCHES:
            mine = [row for row in rows if (row.network, row.layer, row.images) == (name, layer, images)]
            found.append(CrossingRow(name, layer, images, crossing(mine), taken_from))
    return found


def crossing(rows: Sequence[KernelRow]) -> float | None:
    """The density at which the ratio passes 1 for good, between neighbours on a straight line; None if it does not."""
    first = next((i for i in range(len(rows)) if all(row.ratio >= 1 for row in rows[i:])), None)
    if not first:
        return None if first is None else rows[0].density
    below, above = rows[first - 1], rows[first]
    return below.density + (above.density - below.density) * (1 - below.ratio) / (above.ratio - below.ratio)


class _Stand:
    """A layer between two that have one weight each: the first so that it has an input to differentiate by, the
    last for scores of two classes. A convolution's output goes through a mean first."""

    def __init__(self, name: NetworkName, layer: str, seed: int) -> None:
        from feddst import _native  # is not there where there are no kernels

        self._name, self._layer = name, layer
        self._draws = generator(seed, "kernels")
        module, shape = _surrounded(name, layer)
        chain = read_chain(module, shape)
        params = dict(module.named_parameters())
        self._shape = shape
        self._network = _native.Network(chain.shape, chain.layers)
        self._weights = [params[weight].detach().numpy() for weight in chain.weights]
        self._biases = [None if bias is None else params[bias].detach().numpy() for bias in chain.biases]

    def row(self, images: int, density: float, turns: int, repeats: int) -> KernelRow:
        """Time both kinds of kernel, and what is around them, in turn."""
        masks = self._masks(density)
        actions = [
            self._step(self._structure(masks, dense=False), images),
            self._step(self._structure(masks, dense=True), images),
            self._step(self._structure(self._masks(0), dense=False), images),
        ]
        timings = [[timed(action, repeats) for action in actions] for _ in range(turns)]
        sparse, dense, rest = (_together(column) for column in zip(*timings, strict=True))
        return KernelRow(self._name, self._layer, images, density, sparse, dense, rest)

    def taken_from(self) -> float:
        """The lowest density, in whole percents, at which the engine takes the dense kernels."""
        return bisect_left(range(_WHOLE), True, key=self._takes_dense) / _WHOLE

    def _takes_dense(self, percent: int) -> bool:
        from feddst import _native

        return _native.Structure(self._network, self._masks(percent / _WHOLE)).dense[1]

    def _masks(self, density: float) -> list[NDArray[np.uint8]]:
        """One weight of the first layer and of the last; of the layer between them, so many at random, one at least."""
        sizes = self._network.sizes
        kept = [1, max(1, round(density * sizes[1])), 1]
        chosen = [np.arange(size) < count for size, count in zip(sizes, kept, strict=True)]
        return [self._draws.permuted(mask).view(np.uint8) for mask in chosen]

    def _structure(self, masks: list[NDArray[np.uint8]], *, dense: bool) -> "_native.Structure":
        from feddst import _native

        return _native.Structure(self._network, masks, dense=[False, dense, False])

    def _step(self, structure: "_native.Structure", images: int) -> Callable[[], list[float]]:
        from feddst import _native

        session = _native.Session(self._network, chosen_isa())
        session.load(_native.Weights(structure, self._weights, self._biases))
        inputs = self._draws.standard_normal((images, *self._shape), dtype=np.float32)
        labels, order = self._draws.integers(0, 2, images), np.arange(images)
        return lambda: session.train(inputs, labels, order, [images], 0.01, 0.9, 0.001, 0.0)


def _surrounded(name: NetworkName, layer: str) -> tuple[nn.Sequential, tuple[int, ...]]:
    """What a stand trains, and the shape of its input, which is that of the layer's within its network."""
    shape, classes = SHAPES[name]
    x = torch.zeros(1, *shape)
    for found, child in network(ModelConfig(name=name), shape, classes).named_children():
        if found == layer:
            break
        if not isinstance(child, nn.Flatten):
            x = child(x)
    planes = x.shape[1]
    if isinstance(child, nn.Conv2d):
        between: list[nn.Module] = [child, nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        outputs = child.out_channels
    else:
        assert isinstance(child, nn.Linear)
        between, outputs = [nn.Flatten(), child], child.out_features
    return nn.Sequential(nn.Conv2d(planes, planes, 1), *between, nn.Linear(outputs, 2)), tuple(x.shape[1:])


def _together(timings: Sequence[Timing]) -> Timing:
    return Timing(
        statistics.median(timing.median for timing in timings),
        min(timing.shortest for timing in timings),
        sum(timing.calls for timing in timings),
    )
