"""A data set's input shape and number of classes, from its name if possible."""

from dataclasses import dataclass

from feddst.core.batches import tensors_of
from feddst.data.cifar import CIFAR10, CIFAR100
from feddst.data.config import DataConfig
from feddst.data.sources import load


@dataclass(frozen=True)
class Sizes:
    """The shape of one input, and the number of classes."""

    shape: tuple[int, ...]
    classes: int


KNOWN = {
    "mnist": Sizes((1, 28, 28), 10),
    "fashion-mnist": Sizes((1, 28, 28), 10),
    "cifar10": Sizes((3, 32, 32), len(CIFAR10.classes)),
    "cifar100": Sizes((3, 32, 32), len(CIFAR100.classes)),
}
"""Data sets whose sizes are known without loading or download."""


def sizes_of(config: DataConfig) -> Sizes:
    """The sizes of the data set that `config` names; the user's own images are loaded."""
    if config.dataset in KNOWN and not (config.dataset == "mnist" and config.root):
        return KNOWN[config.dataset]
    dataset = load(config.unaugmented)
    return Sizes(tensors_of(dataset.example())[0].shape[1:], dataset.num_classes)
