"""Named tensors, the form in which models, masks and optimizer state travel through the package."""

from collections.abc import Mapping

from torch import Tensor

Tensors = Mapping[str, Tensor]
"""Tensors by parameter name, such as `conv1.weight`."""

Masks = Mapping[str, Tensor]
"""Boolean tensors by parameter name. A parameter without a mask is dense."""


def masked(params: Tensors, masks: Masks) -> dict[str, Tensor]:
    """`params` with every masked-out weight set to zero."""
    return {name: value * masks[name] if name in masks else value for name, value in params.items()}


def count_active(masks: Masks) -> dict[str, int]:
    """How many weights each mask keeps."""
    return {name: int(mask.sum()) for name, mask in masks.items()}
