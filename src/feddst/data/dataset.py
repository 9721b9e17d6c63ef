"""Training and test examples, checked once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from feddst.core.batches import Batch, form_of, length, mapped, rows, same_form, tensors_of
from feddst.core.examples import highest, is_labels
from feddst.core.keys import generator
from feddst.data.adapters import Arrays, Source, as_batch, as_records, classes_of
from feddst.data.conversion import as_inputs, check_normalisation, name_of, unbounded, with_channel
from feddst.data.records import Augment, Records, StoredRecords, spread
from feddst.errors import DataError, OptionError

Indices = npt.NDArray[np.int64]

_MOST_CLASSES = 2**16
"""Whole numbers beyond this are no classes."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples.

    `classes` names the classes where each example has one, `vocabulary` what targets stand for that are one for each
    place of an example, such as tokens; both are empty for other tasks. `owners` says to which client
    each training and each test example belongs by nature, such as a person, int64 [N]: they are numbered from 0.
    `held_out` is how many training examples became the test examples. `versions` is how many versions of each training
    image there are: all images, then the second version of each, and so on; `shift_only` says that none of them is
    mirrored.
    """

    name: str
    train: Records
    test: Records
    classes: tuple[str, ...] = ()
    owners: tuple[Indices, Indices] | None = None
    held_out: int = 0
    versions: int = 1
    shift_only: bool = False
    vocabulary: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part, records in (("train", self.train), ("test", self.test)):
            if not isinstance(records, Records):
                raise DataError(
                    f"{self.name}: {part} must be Records, as Dataset.of(train, test) makes them of anything, got "
                    f"{name_of(records)}"
                )
            check_records(f"{self.name}: {part}", records, self.classes)
        check_alike(self.name, "train", self.train, "test", self.test)
        if isinstance(self.train, StoredRecords):
            check_normalisation(self.name, self.train.inputs, self.train.mean, self.train.std)
        if self.vocabulary:
            _check_vocabulary(self.name, (self.train, self.test), len(self.vocabulary))
        if self.owners is not None:
            _check_owners(self.name, self.owners, (len(self.train), len(self.test)))

    @classmethod
    def of(
        cls,
        train: Source,
        test: Source,
        *,
        name: str = "data",
        classes: Sequence[str] = (),
        inputs: str | Sequence[str] = (),
        target: str | Sequence[str] = (),
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        augment: Augment | None = None,
        owners: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    ) -> "Dataset":
        """A data set from pairs (inputs, targets) of arrays or tensors, or from PyTorch's data sets or loaders.

        Inputs may be a tuple or a dict of arrays, for networks with several arguments. Of items that are dicts,
        `inputs` and `target` name the fields. uint8 images [N, H, W] get a channel dimension, and `mean` and `std`
        normalise them. Targets that are one whole number each are classes: without `classes`, those that occur number
        them.
        `owners` says, for each training and each test example, to whom it belongs: a number from 0, or a name.
        `augment` is a function that changes a client's training inputs once a round; random numbers of PyTorch, NumPy
        and `random` then follow from the run's seed.
        """
        if isinstance(classes, str) or not isinstance(classes, Sequence):
            raise DataError(f"{name}: classes must be a list with the name of each class, got {classes!r}")
        records = as_records(name, "train", train, inputs=inputs, target=target, mean=mean, std=std, augment=augment)
        tests = as_records(name, "test", test, inputs=inputs, target=target, mean=mean, std=std)
        classes = classes or classes_of(train, target) or classes_in(records, tests)
        owned = None if owners is None else _as_owners(name, owners)
        return cls(name, records, tests, tuple(map(str, classes)), owned)

    @classmethod
    def from_arrays(
        cls,
        train: tuple[Arrays, Arrays],
        test: tuple[Arrays, Arrays],
        *,
        name: str = "arrays",
        classes: Sequence[str] = (),
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
    ) -> "Dataset":
        """The same as `of`, for pairs (inputs, targets) of numpy arrays or tensors."""
        for part, pair in (("train", train), ("test", test)):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise DataError(
                    f"{name}: {part} must be a pair (inputs, targets) of arrays or tensors, got {name_of(pair)}; "
                    "for torch Datasets and DataLoaders there is Dataset.of"
                )
        return cls.of(train, test, name=name, classes=classes, mean=mean, std=std)

    def __repr__(self) -> str:
        sizes = f"{len(self.train):,} train, {len(self.test):,} test"
        inputs, targets = self.forms
        task = f"{self.num_classes} classes" if self.classes else f"targets {targets}"
        return f"Dataset({self.name!r}: {sizes}, inputs {inputs}, {task})"

    @property
    def forms(self) -> tuple[str, str]:
        """What inputs and targets look like as stored, in words: `uint8 [1, 28, 28]`."""
        inputs, targets = _sample(self.train)
        return form_of(inputs), form_of(targets)

    @property
    def train_images(self) -> Tensor:
        """The training inputs as stored, where they are one tensor in memory."""
        return _stored(self, self.train).inputs  # type: ignore[return-value]

    @property
    def train_labels(self) -> Tensor:
        """The training targets, where they are one tensor."""
        return _tensor(self.train.targets)

    @property
    def test_images(self) -> Tensor:
        """The test inputs as stored, where they are one tensor in memory."""
        return _stored(self, self.test).inputs  # type: ignore[return-value]

    @property
    def test_labels(self) -> Tensor:
        """The test targets, where they are one tensor."""
        return _tensor(self.test.targets)

    @property
    def mean(self) -> tuple[float, ...]:
        """What is subtracted from each channel of uint8 images."""
        return self.train.mean if isinstance(self.train, StoredRecords) else ()

    @property
    def std(self) -> tuple[float, ...]:
        """What each channel of uint8 images is divided by."""
        return self.train.std if isinstance(self.train, StoredRecords) else ()

    def _repr_html_(self) -> str:
        from feddst.data.notebook import dataset_html

        return dataset_html(self)

    @property
    def num_classes(self) -> int:
        """How many classes there are, of examples or of their places; 0 if the task is another."""
        return len(self.classes or self.vocabulary)

    @property
    def originals(self) -> int:
        """How many training images there are without their altered versions; they are the first."""
        return len(self.train) // self.versions

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without the batch dimension; of the first one if there are several."""
        return tuple(tensors_of(_sample(self.train)[0])[0].shape[1:])

    def inputs(self, stored: Arrays) -> Batch:
        """Inputs for a network from `stored` ones, [N, *input_shape]: uint8 is scaled to [0, 1] and normalised."""
        batch = with_channel(as_batch(self.name, "inputs", stored))
        return mapped(lambda value: as_inputs(value, self.mean, self.std), batch)

    def example(self, count: int = 1) -> Batch:
        """Some inputs for a network."""
        return self.test.read(np.arange(count) % len(self.test)).inputs

    def holding_out(self, count: int) -> "Dataset":
        """`count` training examples, drawn at random but always the same, replace the test examples.

        Altered versions are left out.
        """
        total = self.originals
        if count >= total:
            raise OptionError(f"data.held_out must be below {total}, got {count}")
        order = generator(0, "held out").permutation(total)
        kept, tested = np.sort(order[count:]), np.sort(order[:count])
        owners = None if self.owners is None else (self.owners[0][kept], self.owners[0][tested])
        train, test = self.train.taken(kept), self.train.taken(tested)
        return replace(self, train=train, test=test, owners=owners, held_out=count, versions=1)


def classes_in(*several: Records) -> list[str]:
    """The classes that these records' targets number; none if the targets are of another kind."""
    if not all(is_labels(_sample(records)[1]) for records in several if len(records)):
        return []
    targets = [_tensor(records.targets) for records in several if len(records)]
    least = min((int(labels.min()) for labels in targets), default=0)
    most = max((int(labels.max()) for labels in targets), default=-1)
    return [str(label) for label in range(most + 1)] if least >= 0 and most < _MOST_CLASSES else []


def _stored(dataset: Dataset, records: Records) -> StoredRecords:
    if not isinstance(records, StoredRecords) or not isinstance(records.inputs, Tensor):
        raise DataError(f"{dataset.name}: its inputs are not one tensor in memory: read them with .train.read()")
    return records


def _tensor(targets: Batch) -> Tensor:
    assert isinstance(targets, Tensor)
    return targets


def _sample(records: Records) -> tuple[Batch, Batch]:
    """The inputs and targets of a record or two, as stored."""
    if isinstance(records, StoredRecords):
        return rows(records.inputs, slice(0, 1)), rows(records.targets, slice(0, 1))
    found = records.read(np.arange(1))
    return found.inputs, found.targets


def _as_owners(name: str, owners: Any) -> tuple[Indices, Indices]:
    """The owners of training and test examples as numbers; names are numbered in their order."""
    if not isinstance(owners, tuple | list) or len(owners) != 2:
        raise DataError(f"{name}: owners must be a pair, those of training and of test examples, got {name_of(owners)}")
    train, test = (np.asarray(part) for part in owners)
    if train.dtype.kind == test.dtype.kind == "U":
        names = np.unique(np.concatenate([train.ravel(), test.ravel()]))
        return np.searchsorted(names, train), np.searchsorted(names, test)
    for part, found in (("train", train), ("test", test)):
        if found.dtype.kind not in "iu":
            raise DataError(f"{name}: {part} owners must be whole numbers, or names, got {found.dtype}")
    return train.astype(np.int64), test.astype(np.int64)


def check_alike(name: str, part: str, one: Records, other_part: str, other: Records) -> None:
    """Raise `DataError` unless the examples of two parts of a data set have one form."""
    for what, mine, theirs in zip(("inputs", "targets"), _sample(one), _sample(other), strict=True):
        if not same_form(mine, theirs):
            raise DataError(f"{name}: {part} {what} are {form_of(mine)} but {other_part} {what} are {form_of(theirs)}")


def check_records(what: str, records: Records, classes: Sequence[str] = ()) -> None:
    """Raise `DataError` unless there are examples, as many inputs as targets, finite, with labels that are classes.

    Of records that are read as they are needed some are read, the first and the last among them.
    """
    if not len(records):
        raise DataError(f"{what} has no examples")
    if isinstance(records, StoredRecords):
        if length(records.inputs) != length(records.targets):
            raise DataError(f"{what}: {length(records.inputs)} inputs but {length(records.targets)} targets")
        _check_values(what, records.inputs, records.targets)
    else:
        some = records.read(spread(len(records)))
        _check_values(what, some.inputs, some.targets)
    if classes:
        _check_labels(what, records.targets, len(classes))


def _check_values(what: str, inputs: Batch, targets: Batch) -> None:
    for value in tensors_of(inputs):
        if (value.ndim < 2 and isinstance(inputs, Tensor)) or value.numel() == 0:
            raise DataError(f"{what} inputs must be a non-empty array [N, ...], got shape {list(value.shape)}")
    for value in tensors_of(targets):
        if value.numel() == 0:
            raise DataError(f"{what} targets must be numbers, one or more for each example, got {form_of(targets)}")
    for name, batch in (("input", inputs), ("target", targets)):
        if (bad := unbounded(batch)) is not None:
            raise DataError(f"{what} {name}s must be finite, but {name} {int(bad[0])} holds NaN or infinity")


def _check_labels(what: str, labels: Batch, classes: int) -> None:
    if not is_labels(labels):
        raise DataError(f"{what} labels must be int64 [N] where there are classes, got {_with_n(labels)}")
    found = _tensor(labels)
    bad = ((found < 0) | (found >= classes)).nonzero()
    if len(bad):
        first = int(bad[0])
        raise DataError(
            f"{what} labels out of range: label {int(found[first])} at position {first}, allowed 0 to {classes - 1}"
        )


def _check_vocabulary(name: str, parts: Sequence[Records], size: int) -> None:
    if highest([records.targets for records in parts]) >= size:
        raise DataError(f"{name}: targets must be below {size}, the size of its vocabulary")


def _with_n(labels: Batch) -> str:
    return form_of(labels).replace("[", "[N, ").replace("[N, ]", "[N]")


def _check_owners(name: str, owners: tuple[Indices, Indices], sizes: tuple[int, int]) -> None:
    for part, found, size in zip(("train", "test"), owners, sizes, strict=True):
        if found.shape != (size,):
            raise DataError(
                f"{name}: {part} owners must be one whole number for each of {size} examples, got {found.shape}"
            )
        if found.min() < 0:
            raise DataError(f"{name}: {part} owners must be 0 or more, got {found.min()}")
