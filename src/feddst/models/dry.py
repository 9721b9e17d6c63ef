"""A forward pass that leaves no trace: what a module makes of an input, before any training."""

from typing import Any

import torch
from torch import Tensor, nn


def dry_forward(module: nn.Module, example: Tensor) -> Any:
    """What the module gives for `example` [1, *shape] in evaluation mode; its own mode is as before afterwards."""
    was_training = module.training
    try:
        with torch.no_grad():
            return module.eval()(example)
    finally:
        module.train(was_training)
