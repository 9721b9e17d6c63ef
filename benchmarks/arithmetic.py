"""What training comes to in floating-point operations."""

from collections.abc import Mapping

from torch import Tensor, nn

from feddst.models import multiply_adds, training_flops


def image_flops(module: nn.Module, example: Tensor, densities: Mapping[str, float]) -> int:
    """FLOPs of convolutions and linear layers to train on one image once, each layer at its density (or 1).

    Two for each multiply-add: of the output, of the weights' gradient and, except in the first layer, of the input's
    gradient. example: [1, *input shape].
    """
    counts = multiply_adds(module, example)
    first = next(iter(counts))  # layers are counted as images pass through them
    needless = 2 * counts[first] * densities.get(first, 1.0)
    return training_flops(counts, densities) - round(needless)
