"""Which network is federated, and which of its weights may be pruned."""

from dataclasses import dataclass
from typing import Literal

from feddst.options import option

ModelName = Literal[
    "auto",
    "mnist-cnn",
    "cifar10-cnn",
    "cifar100-cnn",
    "resnet18",
    "har-cnn",
    "mlp",
    "char-lstm",
    "char-transformer",
]


@dataclass(frozen=True)
class ModelConfig:
    """A built-in network; a user's own module comes in through the Python API."""

    name: ModelName = option(
        "auto",
        "the network; auto: the paper's network for images, har-cnn for signals [channels, time], mlp for rows of "
        "numbers, char-lstm for token ids",
    )
    head: Literal["logits", "softmax"] = option(
        "logits", "what the network ends with; softmax (published code) is then applied twice by the loss"
    )
    prunable: tuple[str, ...] = option(
        (),
        "parameters that may be pruned, by name, pattern (fc*.weight) or class of layer (LSTM, Embedding); none: those "
        "of convolution, linear, recurrent and attention layers",
    )
    dense: tuple[str, ...] = option(
        (), "prunable parameters to keep dense all the same, by name, pattern or class of layer"
    )
