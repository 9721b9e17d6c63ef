"""Images and labels, checked once and kept as stored until a network needs them."""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from feddst.core.keys import generator
from feddst.errors import DataError, OptionError

Array: TypeAlias = npt.NDArray[np.generic] | Tensor
Pair: TypeAlias = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images [N, *input_shape], as stored, with int64 labels [N].

    `mean` and `std` (one number a channel, or empty) normalise uint8 images scaled to [0, 1]. `held_out` is how many
    training images became the test images. `versions` is how many versions of each training image there are: all
    images, then the second version of each, and so on; `shift_only` says that none of them is mirrored.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    held_out: int = 0
    versions: int = 1
    shift_only: bool = False

    def __post_init__(self) -> None:
        for part, images, labels in self._parts():
            _check_images(f"{self.name}: {part}", images)
            _check_labels(f"{self.name}: {part}", labels, len(images), len(self.classes))
        train, test = self.train_images, self.test_images
        if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
            raise DataError(f"{self.name}: train images are {_describe(train)} but test images are {_describe(test)}")
        _check_normalisation(self.name, train, self.mean, self.std)

    @classmethod
    def from_arrays(
        cls,
        train: Pair,
        test: Pair,
        *,
        name: str = "arrays",
        classes: tuple[str, ...] = (),
        mean: tuple[float, ...] = (),
        std: tuple[float, ...] = (),
    ) -> "Dataset":
        """A data set from (images, labels) pairs of numpy arrays or tensors.

        uint8 images [N, H, W] get a channel dimension. Without `classes`, the labels that occur number them.
        """
        train_images, train_labels = as_pair(name, "train", train)
        test_images, test_labels = as_pair(name, "test", test)
        if not classes:
            largest = max((int(y.max()) for y in (train_labels, test_labels) if y.numel()), default=-1)
            classes = tuple(str(label) for label in range(largest + 1))
        return cls(
            name,
            train_images,
            train_labels,
            test_images,
            test_labels,
            tuple(classes),
            tuple(mean),
            tuple(std),
        )

    def __repr__(self) -> str:
        sizes = f"{len(self.train_labels):,} train, {len(self.test_labels):,} test"
        return f"Dataset({self.name!r}: {sizes}, inputs {_describe(self.train_images[0])}, {self.num_classes} classes)"

    def _repr_html_(self) -> str:
        from feddst.data.notebook import dataset_html

        return dataset_html(self)

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @property
    def originals(self) -> int:
        """How many training images there are without their altered versions; they are the first."""
        return len(self.train_labels) // self.versions

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image, without the batch dimension."""
        return tuple(self.train_images.shape[1:])

    def inputs(self, images: Array) -> Tensor:
        """Inputs for a network from `images` [N, *input_shape] as they are stored here.

        uint8 is scaled to [0, 1] and normalised, other floats and booleans become float32, and other integers, which
        may be tokens, are unchanged.
        """
        if not isinstance(images, Tensor):
            images = _as_images(self.name, images)
        if images.dtype.is_floating_point or images.dtype == torch.bool:
            return images.float()
        if images.dtype != torch.uint8:
            return images
        scaled = images.float().div_(255)
        if self.mean:
            shape = (-1, *[1] * (images.ndim - 2))
            scaled.sub_(torch.tensor(self.mean, device=images.device).view(shape))
            scaled.div_(torch.tensor(self.std, device=images.device).view(shape))
        return scaled

    def holding_out(self, images: int) -> "Dataset":
        """`images` training images, drawn at random but always the same, replace the test images.

        Altered versions are left out.
        """
        total = self.originals
        if images >= total:
            raise OptionError(f"data.held_out must be below {total}, got {images}")
        order = torch.from_numpy(generator(0, "held out").permutation(total))
        kept, tested = order[images:].sort().values, order[:images].sort().values
        return replace(
            self,
            train_images=self.train_images[kept],
            train_labels=self.train_labels[kept],
            test_images=self.train_images[tested],
            test_labels=self.train_labels[tested],
            held_out=images,
            versions=1,
        )

    def _parts(self) -> tuple[tuple[str, Tensor, Tensor], ...]:
        return ("train", self.train_images, self.train_labels), ("test", self.test_images, self.test_labels)


def as_pair(name: str, part: str, pair: Pair) -> tuple[Tensor, Tensor]:
    """Images and labels as tensors; anything else is refused by name."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(
            f"{name}: {part} must be a pair (inputs, labels) of arrays or tensors, got {name_of(pair)}; "
            "of a torch Dataset, stack its items first"
        )
    images, labels = pair
    if isinstance(images, tuple | dict):
        raise DataError(
            f"{name}: {part} inputs must be one array or tensor [N, ...], got {name_of(images)}: "
            "networks with several inputs are not supported"
        )
    return _as_images(name, images), _as_labels(name, labels)


def name_of(value: object) -> str:
    """What was given, in words."""
    length = f" of {len(value)}" if isinstance(value, tuple | list | dict) else ""
    return f"{type(value).__name__}{length}"


def _as_images(name: str, images: Array) -> Tensor:
    tensor = _as_tensor(name, images)
    return tensor.unsqueeze(1) if tensor.dtype == torch.uint8 and tensor.ndim == 3 else tensor


def _as_labels(name: str, labels: Array) -> Tensor:
    tensor = _as_tensor(name, labels)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise DataError(f"{name}: labels must be integers, got {tensor.dtype}")
    return tensor.long()


def _as_tensor(name: str, array: Array) -> Tensor:
    if isinstance(array, Tensor):
        return array.detach().cpu()
    try:
        array = np.asarray(array)
    except ValueError as error:
        raise DataError(f"{name}: {name_of(array)} is no array of numbers: {error}") from None
    try:
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        # torch warns about arrays it could write to by mistake, so those are copied.
        return torch.from_numpy(np.require(native, requirements=["C", "W"]))
    except TypeError:
        raise DataError(f"{name}: arrays must hold numbers, got {array.dtype}") from None


def _check_images(what: str, images: Tensor) -> None:
    if images.ndim < 2 or images.numel() == 0:
        raise DataError(f"{what} images must be a non-empty array [N, ...], got shape {list(images.shape)}")
    if images.dtype.is_floating_point and not torch.isfinite(images).all():
        bad = int(torch.isfinite(images).flatten(1).all(1).logical_not().nonzero()[0])
        raise DataError(f"{what} images must be finite, but image {bad} holds NaN or infinity")


def _check_labels(what: str, labels: Tensor, images: int, classes: int) -> None:
    if labels.dtype != torch.int64 or labels.ndim != 1:
        raise DataError(f"{what} labels must be int64 [N], got {_describe(labels)}")
    if len(labels) != images:
        raise DataError(f"{what}: {images} images but {len(labels)} labels")
    bad = ((labels < 0) | (labels >= classes)).nonzero()
    if len(bad):
        first = int(bad[0])
        raise DataError(
            f"{what} labels out of range: label {int(labels[first])} at position {first}, allowed 0 to {classes - 1}"
        )


def _check_normalisation(name: str, images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    if not mean and not std:
        return
    if images.dtype != torch.uint8:
        raise DataError(f"{name}: mean and std are for uint8 images, got {images.dtype}")
    channels = images.shape[1]
    if len(mean) != channels or len(std) != channels:
        raise DataError(f"{name}: mean and std need {channels} numbers, one a channel, got {len(mean)} and {len(std)}")
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and min(std) > 0):
        raise DataError(f"{name}: mean must be finite and std above 0, got {mean} and {std}")


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
