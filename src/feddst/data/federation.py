"""A data set and its division among clients, for training and evaluation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from feddst.core import ClientData, Examples
from feddst.data.augmentation import augmented
from feddst.data.config import DataConfig
from feddst.data.dataset import Dataset, Pair, as_pair, name_of
from feddst.data.partition import Indices, Partition, all_versions, count_classes, held_class_tests
from feddst.errors import DataError

_MOST_KEPT = 2**28
"""Bytes of network inputs that a federation keeps."""


@dataclass(frozen=True, eq=False)
class Federation:
    """The clients of an experiment: `partition` says which images of `dataset` each one holds.

    `description` says in words how they were divided, for titles.
    """

    dataset: Dataset
    partition: Partition
    description: str = ""

    def __post_init__(self) -> None:
        train, test = self.partition.train, self.partition.test
        if not train or len(train) != len(test):
            raise DataError(f"a partition needs clients: {len(train)} training sets and {len(test)} test sets")
        for client in range(len(train)):
            _check_indices(f"client {client}: train", train[client], len(self.dataset.train_labels))
            _check_indices(f"client {client}: test", test[client], len(self.dataset.test_labels))

    def __repr__(self) -> str:
        return f"Federation({self.num_clients:,} clients, {self.dataset!r})"

    def _repr_html_(self) -> str:
        from feddst.data.notebook import federation_html

        return federation_html(self)

    @classmethod
    def from_clients(
        cls,
        train: Sequence[Pair],
        test: Pair,
        client_test: Sequence[npt.NDArray[np.integer]] | None = None,
        *,
        name: str = "clients",
        classes: tuple[str, ...] = (),
        mean: tuple[float, ...] = (),
        std: tuple[float, ...] = (),
    ) -> "Federation":
        """A federation from each client's own (images, labels), and one test set for all.

        `client_test` holds each client's positions in the test set; without it a client is tested on all test
        images of the classes it holds.
        """
        if not isinstance(train, Iterable):
            raise DataError(f"{name}: train must hold a pair (inputs, labels) for each client, got {name_of(train)}")
        test_images, test_labels = as_pair(name, "test", test)
        one_test = (test_images[:1], test_labels[:1])  # enough for the comparison; all of it is checked once, below
        owned = [
            Dataset.from_arrays(pair, one_test, name=f"{name}: client {client}", classes=classes)
            for client, pair in enumerate(train)
        ]
        if not owned:
            raise DataError(f"{name}: needs at least one client")
        dataset = Dataset.from_arrays(
            (
                torch.cat([data.train_images for data in owned]),
                torch.cat([data.train_labels for data in owned]),
            ),
            (test_images, test_labels),
            name=name,
            classes=classes,
            mean=mean,
            std=std,
        )
        ends = np.cumsum([len(data.train_labels) for data in owned])
        given = tuple(np.split(np.arange(ends[-1], dtype=np.int64), ends[:-1]))
        if client_test is None:
            counts = count_classes(dataset.train_labels.numpy(), given, dataset.num_classes)
            tests = held_class_tests(counts, dataset.test_labels.numpy())
        else:
            tests = tuple(_as_indices(np.asarray(indices)) for indices in client_test)
        return cls(dataset, Partition(given, tests), f"{name}, {len(owned)} clients")

    def augmented(self, versions: int, shift_only: bool = False) -> "Federation":
        """The same clients with `versions` versions of each training image (option data.augmentation)."""
        DataConfig(augmentation=versions, shift_only=shift_only).check()
        dataset = augmented(self.dataset, versions, shift_only)
        if dataset is self.dataset:
            return self
        originals = [images[images < dataset.originals] for images in self.partition.train]
        return replace(
            self, dataset=dataset, partition=Partition(all_versions(dataset, originals), self.partition.test)
        )

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return len(self.partition.train)

    @property
    def example(self) -> Tensor:
        """A network input [1, *input_shape]."""
        return self.dataset.inputs(self.dataset.test_images[:1])

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return self.dataset.num_classes

    @property
    def client_tests(self) -> tuple[Indices, ...]:
        """Each client's test images, by their positions."""
        return self.partition.test

    def num_images(self, client: int) -> int:
        """How many training images a client has."""
        return len(self.partition.train[client])

    def data_of(self, client: int) -> ClientData:
        """Where one client's training images are."""
        return _StoredHere(self, client)

    def client_data(self, client: int) -> tuple[Tensor, Tensor]:
        """Network inputs float [n, *input_shape] and int64 labels [n] of one client's training images."""
        indices = torch.tensor(self.partition.train[client])
        labels = self.dataset.train_labels[indices]
        if self._kept is not None:
            return self._kept[client].clone(), labels
        return self.dataset.inputs(self.dataset.train_images[indices]), labels

    @cached_property
    def _kept(self) -> tuple[Tensor, ...] | None:
        """All clients' inputs, made once; None if they take too much memory."""
        sizes = [len(indices) for indices in self.partition.train]
        if sum(sizes) * self.dataset.inputs(self.dataset.train_images[:1]).nbytes > _MOST_KEPT:
            return None
        everything = torch.from_numpy(np.concatenate(self.partition.train))
        return self.dataset.inputs(self.dataset.train_images[everything]).split_with_sizes(sizes)

    def class_counts(self) -> Indices:
        """How many training images of each class each client holds, int64 [clients, classes]."""
        return count_classes(self.dataset.train_labels.numpy(), self.partition.train, self.dataset.num_classes)


@dataclass(frozen=True, eq=False)
class _StoredHere(ClientData):
    """A client's images among those of a federation."""

    federation: Federation
    client: int

    def __len__(self) -> int:
        return self.federation.num_images(self.client)

    def load(self) -> Examples:
        return Examples(*self.federation.client_data(self.client))

    @property
    def indices(self) -> Indices:
        return self.federation.partition.train[self.client]


def _as_indices(array: npt.NDArray[np.generic]) -> Indices:
    """Integers widened to int64; anything else is left to the check."""
    return array.astype(np.int64) if array.dtype.kind in "iu" else cast(Indices, array)


def _check_indices(what: str, indices: Indices, images: int) -> None:
    if indices.dtype != np.int64 or indices.ndim != 1:
        raise DataError(f"{what} indices must be int64 [n], got {indices.dtype} {list(indices.shape)}")
    if len(indices) == 0:
        raise DataError(f"{what} has no images")
    if indices.min() < 0 or indices.max() >= images:
        raise DataError(f"{what} indices must be 0 to {images - 1}, got {indices.min()} to {indices.max()}")
