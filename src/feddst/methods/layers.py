"""The prunable layers, found in the server's state alone."""

import torch
from torch import Tensor

from feddst.core import InitialModel, Layer, ServerState
from feddst.core.model import biases_beside

_STACKED = "stacked/"


def stacked_in(model: InitialModel) -> dict[str, Tensor]:
    """What `layers_of` must find in a state's `extra`: how many matrices each layer stacks, if several."""
    return {_STACKED + layer.name: torch.tensor(layer.stacked) for layer in model.layers if layer.stacked > 1}


def layers_of(state: ServerState) -> tuple[Layer, ...]:
    """The layers that have masks."""
    return tuple(
        Layer(name, tuple(mask.shape), biases_beside(state.params, name), int(state.extra.get(_STACKED + name, 1)))
        for name, mask in sorted(state.masks.items())
    )
