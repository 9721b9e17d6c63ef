"""A data set's input shape and number of classes, from its name if possible."""

from dataclasses import dataclass

import torch

from feddst.core.batches import tensors_of
from feddst.data.cifar import CIFAR10, CIFAR100
from feddst.data.config import DataConfig
from feddst.data.har import ACTIVITIES, CHANNELS, LENGTH
from feddst.data.shakespeare import VOCABULARY, WINDOW
from feddst.data.sources import load


@dataclass(frozen=True)
class Sizes:
    """The shape of one input, the number of classes, and what inputs consist of."""

    shape: tuple[int, ...]
    classes: int
    dtype: torch.dtype = torch.float32


KNOWN = {
    "mnist": Sizes((1, 28, 28), 10),
    "fashion-mnist": Sizes((1, 28, 28), 10),
    "shakespeare": Sizes((WINDOW,), len(VOCABULARY), torch.int32),
    "har": Sizes((len(CHANNELS), LENGTH), len(ACTIVITIES)),
    "cifar10": Sizes((3, 32, 32), len(CIFAR10.classes)),
    "cifar100": Sizes((3, 32, 32), len(CIFAR100.classes)),
}
"""Data sets whose sizes are known without loading or download."""


def sizes_of(config: DataConfig) -> Sizes:
    """The sizes of the data set that `config` names; the user's own images are loaded."""
    if config.dataset in KNOWN and not (config.dataset == "mnist" and config.root):
        return KNOWN[config.dataset]
    dataset = load(config.unaugmented)
    example = tensors_of(dataset.example())[0]
    return Sizes(tuple(example.shape[1:]), dataset.num_classes, example.dtype)
