"""Multiply-adds of one forward pass, layer by layer, counted on a real input."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from feddst.models.dry import dry_forward

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_COUNTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, *_TRANSPOSED)
_TRAINING = 6
"""FLOPs of training per multiply-add: two each for the output, the input's and the weights' gradient."""


def multiply_adds(module: nn.Module, example: Tensor) -> dict[str, int]:
    """Multiply-adds for one input, by weight name; example: [1, *input shape]."""
    counts: dict[str, int] = {}

    def counter(name: str) -> Any:
        def count(layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            weight = layer.weight
            spread = inputs[0] if isinstance(layer, _TRANSPOSED) else output
            positions = spread.numel() // weight.shape[0]
            counts[name] = counts.get(name, 0) + positions * math.prod(weight.shape)

        return count

    handles = [
        layer.register_forward_hook(counter(f"{name}.weight" if name else "weight"))
        for name, layer in module.named_modules()
        if isinstance(layer, _COUNTED)
    ]
    try:
        dry_forward(module, example)
    finally:
        for handle in handles:
            handle.remove()
    return counts


def training_flops(counts: Mapping[str, int], densities: Mapping[str, float]) -> int:
    """FLOPs to train on one image once, with each layer at its density (1 where none is given)."""
    return round(_TRAINING * sum(macs * densities.get(name, 1.0) for name, macs in counts.items()))
