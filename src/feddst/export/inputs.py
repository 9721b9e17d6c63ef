"""What a model takes: the shape of an input, and how stored images become one."""

from dataclasses import dataclass

import torch
from torch import Tensor

from feddst.core import LocalTraining, objective_of
from feddst.core.batches import form_of, tensors_of
from feddst.core.plan import USUAL
from feddst.data import DataConfig, Dataset, Federation, StoredRecords, federate
from feddst.data.cifar import CIFAR10, CIFAR100, Cifar
from feddst.data.sources import data_directory
from feddst.errors import FeddstError

_CIFARS = {"cifar10": CIFAR10, "cifar100": CIFAR100}


@dataclass(frozen=True)
class Inputs:
    """Inputs of one `shape` and number format, without the batch dimension, and the classes that scores stand for.

    A model that does not give one score a class gives `outputs` numbers. `several` describes the inputs of a model that
    takes more than one; `shape` and `dtype` are then of the first. `pixels` is whether images are stored as bytes,
    which are divided by 255 and then, where `mean` and `std` are given (one number a channel), normalised.
    """

    data: str
    shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]
    pixels: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    outputs: int = 0
    several: str = ""

    @property
    def name(self) -> str:
        """What inputs are called in code and in graphs: images, if they have channels, height and width."""
        return "images" if len(self.shape) == 3 and self.dtype.startswith("float") else "inputs"

    @property
    def answer(self) -> str:
        """What the model gives, as it is called there: scores of classes, or outputs of another kind."""
        return "outputs" if self.outputs else "scores"

    @property
    def scores(self) -> int:
        """How many numbers the model gives for an input."""
        return self.outputs or len(self.classes)


def inputs_from(dataset: Dataset, local: LocalTraining = USUAL) -> Inputs:
    """What a model takes that was trained on this data set in this way."""
    whole = dataset.example()
    example = tensors_of(whole)[0]
    outputs = objective_of(local).outputs_for(dataset.train.some_targets, dataset.num_classes)
    stored = dataset.train.inputs if isinstance(dataset.train, StoredRecords) else None
    return Inputs(
        data=dataset.name,
        shape=tuple(example.shape[1:]),
        dtype=str(example.dtype).removeprefix("torch."),
        classes=dataset.classes or dataset.vocabulary,
        pixels=isinstance(stored, Tensor) and stored.dtype == torch.uint8,
        mean=dataset.mean,
        std=dataset.std,
        outputs=0 if outputs == dataset.num_classes else outputs,
        several="" if isinstance(whole, Tensor) else form_of(whole),
    )


def named_inputs(config: DataConfig) -> Inputs | None:
    """The inputs of a data set that is known by its name alone."""
    cifar = _CIFARS.get(config.dataset)
    if cifar is None:
        return None
    return Inputs(cifar.name, (3, 32, 32), "float32", cifar.classes, True, cifar.mean, cifar.std)


def federation_here(config: DataConfig, seed: int) -> Federation | None:
    """The data that a config names, partitioned, if they are on this machine: nothing is downloaded."""
    cifar = _CIFARS.get(config.dataset)
    try:
        return federate(config, seed) if cifar is None or _lies_here(cifar, config) else None
    except (FeddstError, OSError):
        return None


def _lies_here(cifar: Cifar, config: DataConfig) -> bool:
    root = data_directory(config)
    return any((root / name).exists() for form in cifar.forms for name in (form.folder, form.archive))
