"""Gradients of M models that are one chain of layers, by Triton kernels."""

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from feddst.engines.native.chain import Chain
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.kernels.batch import Batch, Planes, Slopes
from feddst.engines.stacked.kernels.convolution import Convolution
from feddst.engines.stacked.kernels.descent import Descent
from feddst.engines.stacked.kernels.gathering import gather
from feddst.engines.stacked.kernels.linear import Linear
from feddst.engines.stacked.kernels.loss import cross_entropy
from feddst.engines.stacked.kernels.pooling import Pool
from feddst.errors import UnsupportedModelError

if TYPE_CHECKING:
    from feddst._native import Description

__all__ = ["ChainGradients", "Descent"]

_WIDEST_POOL = 5
_MOST_CLASSES = 1024


class Layer(Protocol):
    """A layer of M models, with the ReLU after it if there is one."""

    result: Planes
    relu: bool

    def forward(self, theta: Tensor, x: Tensor, y: Tensor) -> None:
        """Write y, the layer's output for x."""

    def backward(
        self, theta: Tensor, x: Tensor, slopes: Slopes, into: Tensor, back: Slopes | None, alive: bool
    ) -> None:
        """Write the loss's slopes in the parameters to `into` and those in x to `back`, from those in y.

        alive: x is a ReLU's output, whose slope is applied only here.
        """


class ChainGradients:
    """Gradients of M models that are one chain of layers, by Triton kernels on CUDA."""

    def __init__(
        self, chain: Chain, flat: Flat, models: int, images: int, device: torch.device, *, exact: bool
    ) -> None:
        if images % 8:
            raise ValueError(f"images must come in eights, got {images}")
        self._batch = Batch(models, images, flat.width, exact, device)
        self._softmax = bool(chain.layers) and chain.layers[-1][0] == "softmax"
        self._layers = _read(chain, flat, self._batch)
        self._first = next(i for i, layer in enumerate(self._layers) if not isinstance(layer, Pool))
        self._classes = self._layers[-1].result.channels
        if self._classes > _MOST_CLASSES:
            raise UnsupportedModelError(f"{self._classes} classes are more than the kernels know ({_MOST_CLASSES})")
        sizes = [Planes(*chain.shape), *(layer.result for layer in self._layers)]
        self._given = [self._batch.room(planes) for planes in sizes]
        self._slopes = self._make_slopes()
        linear = [layer for layer in self._layers if isinstance(layer, Linear) and not exact]
        self._largest = max(linear, key=lambda layer: layer.stop - layer.weight, default=None)

    def __call__(
        self,
        theta: Tensor,
        into: Tensor,
        inputs: Tensor,
        labels: Tensor,
        index: Tensor,
        share: Tensor,
        losses: Tensor,
    ) -> None:
        """Write every parameter's gradient to `into` [M, width], and each model's loss to `losses` [M].

        theta: [M, width]; inputs: float32 [N, C, H, W], and their labels, int64 [N]; index: int64 [M, images], which
        image each model sees; share: float32 [M, images], the image's weight in its model's loss (0: padding).
        """
        self._lose(theta, inputs, labels, index, share, losses)
        for i in reversed(range(self._first, len(self._layers))):
            self._layers[i].backward(theta, self._given[i], self._slopes[i], into, *self._before(i))

    def step(
        self,
        theta: Tensor,
        into: Tensor,
        inputs: Tensor,
        labels: Tensor,
        index: Tensor,
        share: Tensor,
        losses: Tensor,
        descent: Descent,
    ) -> None:
        """The gradients and then one SGD step with them.

        Unless exact, the largest linear layer makes its step while its gradient is computed, which spares memory
        traffic (in float32, a product and a step at once need too many registers); `into` is left without its gradient.
        """
        self._lose(theta, inputs, labels, index, share, losses)
        for i in reversed(range(self._first, len(self._layers))):
            layer, given = self._layers[i], (theta, self._given[i], self._slopes[i], into, *self._before(i))
            if layer is self._largest:
                self._largest.descend(*given, descent)
            else:
                layer.backward(*given)
        if self._largest is None:
            descent(theta, into)
        else:
            descent(theta, into, 0, self._largest.weight)
            descent(theta, into, self._largest.stop)

    def forward(self, theta: Tensor, inputs: Tensor, index: Tensor) -> Tensor:
        """The models' scores for their images, [M, classes, images]; the next call overwrites them."""
        self._run(theta, inputs, index)
        scores = self._given[-1][: self._batch.size(self._layers[-1].result)]
        scores = scores.view(self._batch.models, self._classes, self._batch.images)
        return scores.softmax(1) if self._softmax else scores

    def _make_slopes(self) -> list[Slopes]:
        """Memory for the slopes in each layer's output: two buffers by turns, unless a layer needs its own."""
        largest = max(self._batch.size(layer.result) for layer in self._layers)
        rooms = [torch.empty(largest, device=self._batch.device) for _ in range(2)]
        return [
            layer.slopes() if isinstance(layer, Convolution) and layer.padded else Slopes(rooms[i % 2], layer.result)
            for i, layer in enumerate(self._layers)
        ]

    def _before(self, i: int) -> tuple[Slopes | None, bool]:
        """Where a layer writes the slopes in its input, if they are needed, and whether that comes from a ReLU."""
        before = self._layers[i - 1] if i > 0 else None
        alive = before is not None and before.relu and not isinstance(before, Pool)
        return self._slopes[i - 1] if i > self._first else None, alive

    def _lose(
        self, theta: Tensor, inputs: Tensor, labels: Tensor, index: Tensor, share: Tensor, losses: Tensor
    ) -> None:
        self._run(theta, inputs, index)
        cross_entropy(
            self._batch,
            self._given[-1],
            labels,
            index,
            share,
            losses,
            self._slopes[-1].values,
            classes=self._classes,
            softmax=self._softmax,
            alive=self._layers[-1].relu,
        )

    def _run(self, theta: Tensor, inputs: Tensor, index: Tensor) -> None:
        gather(self._batch, inputs, index, self._given[0])
        for layer, x, y in zip(self._layers, self._given, self._given[1:], strict=False):
            layer.forward(theta, x, y)


def _read(chain: Chain, flat: Flat, batch: Batch) -> list[Layer]:
    """The chain's layers, each with the ReLU that follows it."""
    layers: list[Layer] = []
    planes, kinds = Planes(*chain.shape), [kind for kind, *_ in chain.layers]
    owners = iter(zip(chain.weights, chain.biases, strict=True))
    for number, description in enumerate(chain.layers):
        kind, outputs, (high, wide, *_), _, _ = description
        relu, after = _next(kinds[number + 1 :])
        _refuse(description, first=not layers)
        if kind == "convolution":
            padded = bool(layers) and after == "max_pool"
            places = _places(flat, *next(owners))
            layers.append(Convolution(batch, planes, outputs, (high, wide), *places, relu=relu, padded=padded))
        elif kind == "linear":
            layers.append(Linear(batch, planes, outputs, *_places(flat, *next(owners)), relu=relu))
        elif kind == "max_pool":
            layers.append(Pool(batch, planes, high, relu))
        planes = layers[-1].result
    if not chain.weights:
        raise UnsupportedModelError("no layer has weights")
    return layers


def _next(kinds: list[str]) -> tuple[bool, str]:
    """Whether a ReLU comes next, and what comes after it, or after none."""
    after = [kind for kind in kinds if kind != "relu"]
    return kinds[:1] == ["relu"], after[0] if after else ""


def _places(flat: Flat, weight: str, bias: str | None) -> tuple[int, int | None]:
    """Where a layer's weights and biases begin."""
    return flat.starts[weight], None if bias is None else flat.starts[bias]


def _refuse(description: "Description", *, first: bool) -> None:
    """Raise `UnsupportedModelError` if the kernels do not know a layer."""
    kind, _, (high, wide, *rest), _, _ = description
    if kind not in ("convolution", "linear", "max_pool", "relu", "softmax"):
        raise UnsupportedModelError(f"{kind} is not among the layers that the kernels know")
    if kind in ("relu", "softmax") and first:
        raise UnsupportedModelError(f"a {kind} comes before any other layer")
    if kind in ("convolution", "max_pool") and rest != [1, 1, 0, 0]:
        raise UnsupportedModelError(f"{kind} has strides {rest[:2]} and padding {rest[2:]}, not 1 and 0")
    if kind == "max_pool" and (high != wide or high > _WIDEST_POOL):
        raise UnsupportedModelError(f"max_pool has a window of {high}×{wide}, not a square up to {_WIDEST_POOL}")
