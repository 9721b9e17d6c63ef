"""Multiply-adds of one forward pass, layer by layer, counted on a real input."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn
from torch.nn.utils.rnn import PackedSequence

from feddst.core.batches import Batch
from feddst.models.dry import dry_forward
from feddst.models.matrices import Matrix, matrices

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_FORWARD = 2
"""FLOPs of a forward pass per multiply-add: a product and a sum."""
_TRAINING = 3 * _FORWARD
"""FLOPs of training per multiply-add: two each for the output, the input's and the weights' gradient."""


def multiply_adds(module: nn.Module, example: Batch) -> dict[str, int]:
    """Multiply-adds for one input, by weight name; example: [1, *input shape]."""
    counts: dict[str, int] = {}

    def count(matrix: Matrix, layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        found = _of_call(layer, matrix.own, args, kwargs, output)
        counts[matrix.name] = counts.get(matrix.name, 0) + found

    handles = [
        module.get_submodule(matrix.owner).register_forward_hook(partial(count, matrix), with_kwargs=True)
        for matrix in matrices(module)
    ]
    try:
        dry_forward(module, example)
    finally:
        for handle in handles:
            handle.remove()
    return counts


def _of_call(layer: Any, own: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> int:
    """Multiply-adds with one of a layer's weights, called `own`, in one call."""
    if isinstance(layer, nn.MultiheadAttention):
        return _of_attention(layer, own, args, kwargs)
    given = args[0] if args else kwargs["input"]
    if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
        values = given.data if isinstance(given, PackedSequence) else given
        return int(values.numel()) // layer.input_size * layer.get_parameter(own).numel()  # each step uses them all
    spread = given if isinstance(layer, _TRANSPOSED) else output
    return int(spread.numel() // layer.weight.shape[0] * math.prod(layer.weight.shape))


def _of_attention(layer: nn.MultiheadAttention, own: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Each place of query, key, value and output is multiplied by its matrix."""
    query, key, value = (
        given.numel() * layer.embed_dim
        for given in (*args, *(kwargs[name] for name in ("query", "key", "value")[len(args) :]))[:3]
    )
    each = {"q_proj_weight": query, "k_proj_weight": key, "v_proj_weight": value, "in_proj_weight": query + key + value}
    return int(each.get(own, query))


def training_flops(counts: Mapping[str, int], densities: Mapping[str, float]) -> int:
    """FLOPs to train on one image once, with each layer at its density (1 where none is given)."""
    return _flops(_TRAINING, counts, densities)


def forward_flops(counts: Mapping[str, int], densities: Mapping[str, float]) -> int:
    """FLOPs of a forward pass for one input, two each multiply-add, with each layer at its density (1 without one)."""
    return _flops(_FORWARD, counts, densities)


def _flops(each: int, counts: Mapping[str, int], densities: Mapping[str, float]) -> int:
    return round(each * sum(macs * densities.get(name, 1.0) for name, macs in counts.items()))
