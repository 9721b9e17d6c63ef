"""How many weights each layer keeps, for a given sparsity of the whole network.

`uniform` gives every layer the same density. `er` and `erk` (Mocanu et al. 2018; Evci et al. 2020, RigL) give a layer
density ε·(sum of its dimensions)/(product of them), over channels alone or with the kernel's dimensions, and solve ε
for the whole; where matrices are stacked in one tensor, the dimensions are those of one. `root` gives a layer weights
in proportion to the square root of its size, `even` gives every layer equally many, as far as it has them. Both make
convolutions denser, or dense: they are small, and their weights are used often. `erk-published` is what the FedDST
authors' code does under the name ERK: it scales each layer's *sparsity* instead, and counts biases.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from feddst.core.model import Layer
from feddst.errors import ModelError
from feddst.options import option

Distribution = Literal["uniform", "er", "erk", "root", "even", "erk-published"]
"""The ways to spread weights over layers, by name."""


@dataclass(frozen=True)
class Sparsity:
    """The share of weights left out, and how it is spread over the layers."""

    level: float = option(0.8, "S: share of the prunable weights that are left out", at_least=0, below=1)
    distribution: Distribution = option("erk", "how the kept weights are spread over the layers")

    def budgets(self, layers: Sequence[Layer]) -> dict[str, int]:
        """How many weights each layer keeps."""
        if not layers:
            raise ModelError(
                "the model has nothing to prune: it has no convolution, linear, recurrent or attention layer that is "
                "trained (model.prunable names other parameters)"
            )
        counts = _DISTRIBUTIONS[self.distribution](layers, self.level)
        return {layer.name: count for layer, count in zip(layers, counts, strict=True)}


def uniform(layers: Sequence[Layer], sparsity: float) -> list[int]:
    return _whole([1 - sparsity] * len(layers), layers, sparsity)


def er(layers: Sequence[Layer], sparsity: float) -> list[int]:
    return _whole(_solve([_channel_score(layer) for layer in layers], layers, sparsity), layers, sparsity)


def erk(layers: Sequence[Layer], sparsity: float) -> list[int]:
    return _whole(_solve([_kernel_score(layer) for layer in layers], layers, sparsity), layers, sparsity)


def root(layers: Sequence[Layer], sparsity: float) -> list[int]:
    return _whole(_solve([layer.size**-0.5 for layer in layers], layers, sparsity), layers, sparsity)


def even(layers: Sequence[Layer], sparsity: float) -> list[int]:
    return _whole(_solve([1 / layer.size for layer in layers], layers, sparsity), layers, sparsity)


def erk_published(layers: Sequence[Layer], sparsity: float) -> list[int]:
    sizes = [layer.size + layer.biases for layer in layers]
    raw = [max(0.0, 1 - _kernel_score(layer)) for layer in layers]
    if not any(raw):
        raise ModelError("sparsity.distribution erk-published gives these layers no sparsity: they are too small")
    scale = sparsity * sum(sizes) / sum(s * n for s, n in zip(raw, sizes, strict=True))
    kept = [math.floor((1 - scale * s) * n) for s, n in zip(raw, sizes, strict=True)]
    return [min(max(k, 1), layer.size) for k, layer in zip(kept, layers, strict=True)]


_DISTRIBUTIONS: dict[Distribution, Callable[[Sequence[Layer], float], list[int]]] = {
    "uniform": uniform,
    "er": er,
    "erk": erk,
    "root": root,
    "even": even,
    "erk-published": erk_published,
}


def _kernel_score(layer: Layer) -> float:
    shape = _single(layer)
    return sum(shape) / math.prod(shape)


def _channel_score(layer: Layer) -> float:
    shape = _single(layer)[:2]
    return sum(shape) / math.prod(shape)


def _single(layer: Layer) -> tuple[int, ...]:
    """The shape of one of a layer's stacked matrices; most layers have only one."""
    return layer.shape[0] // layer.stacked, *layer.shape[1:]


def _solve(scores: Sequence[float], layers: Sequence[Layer], sparsity: float) -> list[float]:
    """Densities ε·score that meet the budget; while one exceeds 1, the densest becomes dense."""
    dense: set[int] = set()
    budget = (1 - sparsity) * sum(layer.size for layer in layers)
    while len(dense) < len(layers):
        rest = [i for i in range(len(layers)) if i not in dense]
        left = budget - sum(layers[i].size for i in dense)
        epsilon = left / sum(scores[i] * layers[i].size for i in rest)
        densest = max(rest, key=lambda i: scores[i])
        if epsilon * scores[densest] <= 1:
            return [1.0 if i in dense else epsilon * scores[i] for i in range(len(layers))]
        dense.add(densest)
    return [1.0] * len(layers)


def _whole(densities: Sequence[float], layers: Sequence[Layer], sparsity: float) -> list[int]:
    """Whole weights for each layer; the largest layer absorbs what rounding leaves."""
    counts = [round(d * layer.size) for d, layer in zip(densities, layers, strict=True)]
    largest = max(range(len(layers)), key=lambda i: layers[i].size)
    counts[largest] += round((1 - sparsity) * sum(layer.size for layer in layers)) - sum(counts)
    if not 0 <= counts[largest] <= layers[largest].size:
        raise ModelError(f"sparsity {sparsity:g} cannot be met with whole weights in layer {layers[largest].name}")
    return counts
