"""A data set and its division among clients, for training and evaluation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from feddst.core import ClientData, Examples
from feddst.core.batches import Batch, mapped, rows, tensors_of
from feddst.core.examples import Draw, labels_in
from feddst.core.keys import generator
from feddst.data.adapters import Source, as_records, classes_of
from feddst.data.augmentation import augmented
from feddst.data.config import DataConfig
from feddst.data.conversion import name_of
from feddst.data.dataset import Dataset, check_alike, check_records, classes_in
from feddst.data.flwr_partitions import partitions_of, split_of
from feddst.data.partition import Indices, Partition, all_versions, count_classes, held_class_tests
from feddst.data.records import Augment, Records, StoredRecords, chained
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
            _check_indices(f"client {client}: train", train[client], len(self.dataset.train))
            _check_indices(f"client {client}: test", test[client], len(self.dataset.test))

    def __repr__(self) -> str:
        return f"Federation({self.num_clients:,} clients, {self.dataset!r})"

    def _repr_html_(self) -> str:
        from feddst.data.notebook import federation_html

        return federation_html(self)

    @classmethod
    def from_clients(
        cls,
        train: Sequence[Source],
        test: Source | Sequence[Source] | float,
        client_test: Sequence[npt.NDArray[np.integer]] | None = None,
        *,
        name: str = "clients",
        classes: Sequence[str] = (),
        inputs: str | Sequence[str] = (),
        target: str | Sequence[str] = (),
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        augment: Augment | None = None,
    ) -> "Federation":
        """A federation from each client's own examples, in any form that `Dataset.of` takes.

        `test` is one test set for all, or a list with each client's own, or the share of its own examples that each
        client is tested on instead of training on them, drawn at random but always the same. `client_test` holds each
        client's positions in the one test set; without it a client is tested on all test examples of the classes it
        holds, or on all of them where there are no classes.
        """
        if not isinstance(train, Iterable):
            raise DataError(f"{name}: train must hold a pair (inputs, targets) for each client, got {name_of(train)}")
        read = partial(as_records, name, inputs=inputs, target=target, mean=mean, std=std)
        own = [read(f"client {client}: train", source, augment=augment) for client, source in enumerate(train)]
        if not own:
            raise DataError(f"{name}: needs at least one client")
        tests: Sequence[Source] | None
        if isinstance(test, float):
            own, tests = _divided(name, own, test)
        else:
            tests = _each_test(test, len(own))
        if tests is not None and client_test is not None:
            raise DataError(f"{name}: client_test is for one test set for all, but test has one for each client")
        parts = [read(f"client {c}: test", one) for c, one in enumerate(tests)] if tests else [read("test", test)]
        for client, records in enumerate(own):
            check_records(f"{name}: client {client}: train", records)
            check_alike(name, f"client {client}", records, "the test set", parts[0])
        for client, records in enumerate(parts[1:], start=1):
            check_alike(name, f"client {client}'s test", records, "client 0's test", parts[0])
        named = next(iter(train), None) if isinstance(train, Sequence) else None
        classes = classes or classes_of(named, target) or classes_in(*own, *parts)
        dataset = Dataset(name, chained(own), chained(parts), tuple(classes))
        given = _positions(own)
        if tests is not None:
            tested = _positions(parts)
        elif client_test is not None:
            if not isinstance(client_test, Iterable):
                raise DataError(f"{name}: client_test must hold each client's positions, got {name_of(client_test)}")
            tested = tuple(_as_indices(np.asarray(indices)) for indices in client_test)
        elif classes:
            tested = held_class_tests(
                count_classes(dataset.train_labels.numpy(), given, dataset.num_classes), dataset.test_labels.numpy()
            )
        else:
            tested = (np.arange(len(dataset.test)),) * len(own)
        return cls(dataset, Partition(given, tested), f"{name}, {len(own)} clients")

    @classmethod
    def from_flwr(
        cls,
        source: Any,
        test: Source | str | float,
        *,
        split: str = "",
        name: str = "flwr",
        classes: Sequence[str] = (),
        inputs: str | Sequence[str] = (),
        target: str | Sequence[str] = (),
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        augment: Augment | None = None,
    ) -> "Federation":
        """A federation from a `FederatedDataset` of flwr-datasets, or from one of its partitioners with a data set.

        Each partition is a client, with its rows read as they are needed. `inputs` and `target` name columns. `test` is
        the name of a split of the `FederatedDataset`, or anything that `from_clients` takes.
        """
        parts = partitions_of(source, split)
        tested = split_of(source, test) if isinstance(test, str) else test
        return cls.from_clients(
            parts,
            tested,
            name=name,
            classes=classes,
            inputs=inputs,
            target=target,
            mean=mean,
            std=std,
            augment=augment,
        )

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
    def example(self) -> Batch:
        """A network input [1, *input_shape]."""
        return self.dataset.example()

    @property
    def num_classes(self) -> int:
        """How many classes there are; 0 if the task is another."""
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

    def client_data(self, client: int, draw: Draw | None = None) -> Examples:
        """One client's training examples, as a network takes them in."""
        records, index = self.dataset.train, self.partition.train[client]
        if self._kept is None or not isinstance(records, StoredRecords):
            return records.read(index, draw)
        inputs = mapped(torch.clone, self._kept[client])
        return Examples(records.changed(inputs, draw), rows(records.targets, torch.from_numpy(index)))

    @cached_property
    def _kept(self) -> tuple[Batch, ...] | None:
        """All clients' inputs, made once; None if they take too much memory."""
        records, each = self.dataset.train, self.partition.train
        if not isinstance(records, StoredRecords):
            return None
        one = records.prepared(rows(records.inputs, slice(0, 1)))
        if sum(map(len, each)) * sum(value.nbytes for value in tensors_of(one)) > _MOST_KEPT:
            return None
        everything = records.prepared(rows(records.inputs, torch.from_numpy(np.concatenate(each))))
        ends = np.cumsum([0, *map(len, each)])
        return tuple(rows(everything, slice(int(start), int(end))) for start, end in pairwise(ends))

    def class_counts(self) -> Indices:
        """How many training examples of each class each client holds, int64 [clients, classes].

        Without classes there is one column, with all of them.
        """
        labels = (
            labels_in(self.dataset.train.targets)
            if self.dataset.classes
            else np.zeros(len(self.dataset.train), np.int64)
        )
        return count_classes(labels, self.partition.train, max(1, len(self.dataset.classes)))


@dataclass(frozen=True, eq=False)
class _StoredHere(ClientData):
    """A client's images among those of a federation."""

    federation: Federation
    client: int

    def __len__(self) -> int:
        return self.federation.num_images(self.client)

    def load(self, draw: Draw | None = None) -> Examples:
        return self.federation.client_data(self.client, draw)

    @property
    def indices(self) -> Indices:
        return self.federation.partition.train[self.client]


def _each_test(test: Source | Sequence[Source], clients: int) -> Sequence[Source] | None:
    """Each client's own test set, if `test` is a list with one for each; None if it is one for all."""
    if not isinstance(test, list) or any(isinstance(part, np.ndarray | torch.Tensor | int | float) for part in test):
        return None
    if len(test) != clients:
        raise DataError(
            f"test has {len(test)} test sets for {clients} clients: it must have one for each, or be one for all"
        )
    return test


def _divided(name: str, own: Sequence[Records], share: float) -> tuple[list[Records], list[Records]]:
    """Each client's examples to train on, and those to be tested on."""
    if not 0 < share < 1:
        raise DataError(f"{name}: test must be in (0, 1) where it is a share of each client's own, got {share}")
    train, test = list[Records](), list[Records]()
    for client, records in enumerate(own):
        count = max(1, round(share * len(records)))
        if count >= len(records):
            raise DataError(
                f"{name}: client {client} has {len(records)} examples, too few to be tested on {share:g} of them and "
                "to train on the others"
            )
        order = generator(0, "test share", client=client).permutation(len(records))
        train.append(records.taken(np.sort(order[count:])))
        test.append(records.taken(np.sort(order[:count])))
    return train, test


def _positions(parts: Sequence[Records]) -> tuple[Indices, ...]:
    """The positions of each part's examples among all of them."""
    ends = np.cumsum([len(part) for part in parts])
    return tuple(np.split(np.arange(ends[-1], dtype=np.int64), ends[:-1]))


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
