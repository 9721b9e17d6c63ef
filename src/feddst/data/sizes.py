"""The input shape and the number of classes of image sets, for those who only ask for these."""

from dataclasses import dataclass

from feddst.data.cifar import CIFAR10, CIFAR100


@dataclass(frozen=True)
class Sizes:
    """The shape of one input, and the number of classes."""

    shape: tuple[int, ...]
    classes: int


KNOWN = {
    "mnist": Sizes((1, 28, 28), 10),
    "cifar10": Sizes((3, 32, 32), len(CIFAR10.classes)),
    "cifar100": Sizes((3, 32, 32), len(CIFAR100.classes)),
}
"""Image sets whose sizes are known without loading or download."""
