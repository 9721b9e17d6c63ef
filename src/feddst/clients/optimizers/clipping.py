"""Gradient clipping by norm, as `torch.nn.utils.clip_grad_norm_` does it."""

import torch
from torch import Tensor


def shortening(norm: Tensor, most: float) -> Tensor:
    """The factor on a gradient of this norm, so that it is no longer than `most`; of any shape."""
    return (most / (norm + 1e-6)).clamp(max=1.0)


def clip(gradients: dict[str, Tensor], most: float) -> None:
    """Shorten a client's gradients, in place, so that they have at most this norm together."""
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients.values()]))
    for gradient in gradients.values():
        gradient.mul_(shortening(norm, most))
