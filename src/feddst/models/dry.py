"""A forward pass without side effects, before any training."""

from typing import Any

import torch
from torch import nn

from feddst.core.batches import Batch, call


def dry_forward(module: nn.Module, example: Batch) -> Any:
    """The module's output for `example` [1, *shape] in evaluation mode; its own mode is restored."""
    was_training = module.training
    try:
        with torch.no_grad():
            return call(module.eval(), example)
    finally:
        module.train(was_training)
