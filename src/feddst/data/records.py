"""Records: examples of a data set that are read by their positions, from tensors or from a `Dataset` of PyTorch."""

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from feddst.core import Examples
from feddst.core.batches import Batch, form_of, joined, length, mapped, rows, same_form, tensors_of
from feddst.core.examples import Draw
from feddst.core.keys import generator
from feddst.data.conversion import as_inputs, as_item, as_targets, check_normalisation, unbounded, with_channel
from feddst.data.progress import Meter
from feddst.errors import DataError

Indices = npt.NDArray[np.int64]
Augment = Callable[[Batch], Batch]
"""Changes a client's inputs, at random if it likes: it is called once a round."""

_STILL: Draw = (0, 0, 0)
"""What random changes follow from outside of training: they are always the same."""

_RANDOM = threading.RLock()
_SAMPLED = 16
"""How many records are read to tell one data set from another, where reading all takes too long."""


class Records(ABC):
    """Examples, by position. `targets` are all targets."""

    targets: Batch

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def read(self, index: Indices | None = None, draw: Draw | None = None) -> Examples:
        """The examples at these positions, or all, as a network takes them in.

        Random changes follow from `draw`, that is from the seed, the round and the client; without it none are made,
        or always the same ones.
        """

    @property
    def some_targets(self) -> Batch:
        """All targets if they are known, else the first ones."""
        return self.targets

    @abstractmethod
    def taken(self, index: Indices) -> "Records":
        """The records at these positions."""

    @abstractmethod
    def content(self) -> Iterator[bytes]:
        """Bytes for a digest of the records: different records give different ones, nearly always."""

    @property
    def writes(self) -> tuple[int, ...]:
        """How often its tensors have been written to, as PyTorch counts it."""
        return ()

    @property
    def fixed(self) -> bool:
        """Whether an example is the same each time it is read."""
        return True


@dataclass(frozen=True, eq=False)
class StoredRecords(Records):
    """Records in memory, as they are stored: a network takes them in as `as_inputs` makes them.

    `mean` and `std` (one number a channel, or empty) normalise floats and uint8 images. `augment` changes a
    client's inputs.
    """

    inputs: Batch
    targets: Batch
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    augment: Augment | None = None

    def __len__(self) -> int:
        return length(self.targets)

    def read(self, index: Indices | None = None, draw: Draw | None = None) -> Examples:
        here = slice(None) if index is None else torch.from_numpy(index)
        prepared = self.prepared(rows(self.inputs, here))
        if index is None and draw is not None and self.augment is not None:
            prepared = mapped(torch.clone, prepared)  # it may write to what it is given
        return Examples(self.changed(prepared, draw), rows(self.targets, here))

    def prepared(self, stored: Batch) -> Batch:
        """A network's inputs for some of the stored ones."""
        return mapped(lambda value: as_inputs(value, self.mean, self.std), stored)

    def changed(self, inputs: Batch, draw: Draw | None) -> Batch:
        """A client's inputs after the augmentation, if there is one."""
        return changed(inputs, self.augment, draw)

    def taken(self, index: Indices) -> "StoredRecords":
        here = torch.from_numpy(index)
        return StoredRecords(rows(self.inputs, here), rows(self.targets, here), self.mean, self.std, self.augment)

    def content(self) -> Iterator[bytes]:
        for tensor in (*tensors_of(self.inputs), *tensors_of(self.targets)):
            yield f"{tuple(tensor.shape)} {tensor.dtype}".encode()
            yield tensor.contiguous().view(-1).view(torch.uint8).numpy().data  # type: ignore[misc]

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(tensor._version for tensor in (*tensors_of(self.inputs), *tensors_of(self.targets)))

    @property
    def fixed(self) -> bool:
        return self.augment is None


Collate = Callable[[Sequence[Any]], Any]
"""Makes a batch of several items, as a `DataLoader`'s `collate_fn` does."""


@dataclass(frozen=True, eq=False)
class ReadRecords(Records):
    """Records that are read from a map-style `torch.utils.data.Dataset` when they are needed, with its transforms.

    An item is (inputs, target). `split` takes an item of another form apart; `collate` makes a batch of several items.
    Whatever a transform draws from `random`, NumPy or PyTorch follows from the seed, the round, the client and the
    item's position. `known` are the targets, if they are known without reading every item. `mean`, `std` and `augment`
    are as in `StoredRecords`.
    """

    source: Any
    split: Callable[[Any], tuple[Any, Any]]
    name: str = "data"
    collate: Collate | None = None
    known: Batch | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    augment: Augment | None = None

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: Indices | None = None, draw: Draw | None = None) -> Examples:
        wanted = np.arange(len(self)) if index is None else index
        with drawing() as begin:
            items = [self._item(place, begin, draw) for place in wanted.tolist()]
            if self.collate is None:
                pairs = [self._parts(item, place) for item, place in zip(items, wanted, strict=True)]
                stored = self._stacked("inputs", wanted, [inputs for inputs, _ in pairs])
                targets = self._stacked("target", wanted, [target for _, target in pairs])
            else:
                begin("collate", *(draw or _STILL))
                stored, targets = self._collated(self.collate, items)
        stored = with_channel(stored)
        check_normalisation(self.name, stored, self.mean, self.std)
        for what, batch in (("inputs", stored), ("target", targets)):
            if (bad := unbounded(batch)) is not None:
                place = wanted[int(bad[0])]
                raise DataError(f"{self.name}: {what} of item {place} must be finite, got NaN or infinity")
        inputs = mapped(lambda value: as_inputs(value, self.mean, self.std), stored)
        return Examples(changed(inputs, self.augment, draw), as_targets(targets))

    @cached_property
    def targets(self) -> Batch:  # type: ignore[override]
        if self.known is not None:
            return self.known
        found: list[Batch] = []
        with Meter(f"reading {self.name}", len(self)) as meter:
            for start in range(0, len(self), 256):
                found.append(self.read(np.arange(start, min(start + 256, len(self)))).targets)
                meter.update(length(found[-1]))
        return joined(found)

    @property
    def some_targets(self) -> Batch:
        if self.known is not None or "targets" in vars(self):
            return self.targets
        return self.read(np.arange(min(_SAMPLED, len(self)))).targets

    def taken(self, index: Indices) -> "Records":
        return TakenRecords(self, index)

    def content(self) -> Iterator[bytes]:
        yield f"{len(self)} {type(self.source).__name__}".encode()
        found = self.read(spread(len(self)))
        yield from StoredRecords(found.inputs, found.targets).content()

    @property
    def fixed(self) -> bool:
        return False  # nobody knows

    def _item(self, place: int, begin: Callable[[str, int, int, int], None], draw: Draw | None) -> Any:
        begin(f"item {place}", *(draw or _STILL))
        try:
            return self.source[place]
        except Exception as error:
            raise DataError(f"{self.name}: item {place} of {len(self)} cannot be read: {_reason(error)}") from error

    def _parts(self, item: Any, place: int) -> tuple[Any, Any]:
        try:
            return self.split(item)
        except DataError as error:
            raise DataError(f"{self.name}: item {place}: {error}") from None

    def _collated(self, collate: Collate, items: Sequence[Any]) -> tuple[Batch, Batch]:
        try:
            batch = collate(items)
        except Exception as error:
            raise DataError(f"{self.name}: the collate_fn failed on {len(items)} items: {_reason(error)}") from error
        try:
            parts = self.split(batch)
        except DataError as error:
            raise DataError(f"{self.name}: the collate_fn's batch: {error}") from None
        inputs, targets = (as_item(f"{self.name}: the collate_fn's batch", one) for one in parts)
        for what, found in (("inputs", inputs), ("targets", targets)):
            if any(not one.dim() or len(one) != len(items) for one in tensors_of(found)):
                raise DataError(
                    f"{self.name}: the collate_fn must give {len(items)} {what} for {len(items)} items, as the first "
                    f"dimension, got {form_of_one(found)}"
                )
        return inputs, targets

    def _stacked(self, what: str, index: Indices, values: Sequence[Any]) -> Batch:
        found = [as_item(f"{self.name}: {what} of item {at}", one) for at, one in zip(index, values, strict=True)]
        first = form_of_one(found[0])
        for place, batch in zip(index, found, strict=True):
            if form_of_one(batch) != first:
                raise DataError(
                    f"{self.name}: {what} of item {place} has the form {form_of_one(batch)}, but that of item "
                    f"{index[0]} {first}; give the data set a transform that makes them alike, or a DataLoader with a "
                    "collate_fn"
                )
        if isinstance(found[0], Tensor):
            return torch.stack([one for one in found if isinstance(one, Tensor)])
        columns = [torch.stack(column) for column in zip(*map(tensors_of, found), strict=True)]
        return dict(zip(found[0], columns, strict=True)) if isinstance(found[0], dict) else tuple(columns)


@dataclass(frozen=True, eq=False)
class TakenRecords(Records):
    """Some records of others."""

    whole: Records
    index: Indices

    def __len__(self) -> int:
        return len(self.index)

    def read(self, index: Indices | None = None, draw: Draw | None = None) -> Examples:
        return self.whole.read(self.index if index is None else self.index[index], draw)

    @property
    def targets(self) -> Batch:  # type: ignore[override]
        return rows(self.whole.targets, torch.from_numpy(self.index))

    @property
    def some_targets(self) -> Batch:
        return self.read(np.arange(min(_SAMPLED, len(self)))).targets if not self.fixed else self.targets

    def taken(self, index: Indices) -> Records:
        return TakenRecords(self.whole, self.index[index])

    def content(self) -> Iterator[bytes]:
        yield from self.whole.content()
        yield self.index.tobytes()

    @property
    def fixed(self) -> bool:
        return self.whole.fixed


@dataclass(frozen=True, eq=False)
class ChainedRecords(Records):
    """Several records, one after another."""

    parts: Sequence[Records]
    starts: Indices = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", np.cumsum([0, *map(len, self.parts)]))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def read(self, index: Indices | None = None, draw: Draw | None = None) -> Examples:
        wanted = np.arange(len(self)) if index is None else index
        owner = np.searchsorted(self.starts, wanted, side="right") - 1
        found, order = list[Examples](), list[Indices]()
        for part in np.unique(owner):
            here = np.flatnonzero(owner == part)
            found.append(self.parts[part].read(wanted[here] - self.starts[part], draw))
            order.append(here)
        back = torch.from_numpy(np.argsort(np.concatenate(order), kind="stable"))
        whole = Examples(joined([one.inputs for one in found]), joined([one.targets for one in found]))
        return whole.at(back)

    @property
    def targets(self) -> Batch:  # type: ignore[override]
        return joined([part.targets for part in self.parts])

    @property
    def some_targets(self) -> Batch:
        return joined([part.some_targets for part in self.parts])

    def taken(self, index: Indices) -> Records:
        return TakenRecords(self, index)

    def content(self) -> Iterator[bytes]:
        for part in self.parts:
            yield from part.content()

    @property
    def fixed(self) -> bool:
        return all(part.fixed for part in self.parts)


def chained(parts: Sequence[Records]) -> Records:
    """Several records as one; in memory if all of them are, and are read alike."""
    first = parts[0]
    if isinstance(first, StoredRecords) and all(
        isinstance(part, StoredRecords)
        and (part.mean, part.std, part.augment) == (first.mean, first.std, first.augment)
        for part in parts
    ):
        stored = [part for part in parts if isinstance(part, StoredRecords)]
        inputs, targets = joined([part.inputs for part in stored]), joined([part.targets for part in stored])
        return StoredRecords(inputs, targets, first.mean, first.std, first.augment)
    return ChainedRecords(parts)


def changed(inputs: Batch, augment: Augment | None, draw: Draw | None) -> Batch:
    """A client's inputs after the augmentation, if there is one; they must keep their form."""
    if augment is None or draw is None:
        return inputs
    with drawing() as begin:
        begin("augmentation", *draw)
        try:
            found = augment(inputs)
        except Exception as error:
            raise DataError(f"augment failed on inputs {form_of(inputs)}: {_reason(error)}") from error
    if not isinstance(found, Tensor | tuple | dict) or not same_form(found, inputs) or length(found) != length(inputs):
        given = form_of(found) if isinstance(found, Tensor) else type(found).__name__
        raise DataError(f"augment must give inputs like those it is given, {form_of(inputs)}, got {given}")
    if unbounded(found) is not None:
        raise DataError("augment gave inputs with NaN or infinity")
    return found


def form_of_one(batch: Batch) -> str:
    """What one item looks like, in words."""
    return form_of(mapped(lambda value: value[None], batch))


def spread(size: int) -> Indices:
    """A few positions, the first and the last among them."""
    return np.unique(np.linspace(0, size - 1, min(_SAMPLED, size)).astype(np.int64))


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


@contextmanager
def drawing() -> Iterator[Callable[[str, int, int, int], None]]:
    """Within this, `random`, NumPy's and PyTorch's own numbers follow from what is given to the function.

    Afterwards they go on as before.
    """
    with _RANDOM:
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        try:
            yield _begin_to_draw
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
            torch.set_rng_state(before[2])


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within this, no other thread is `drawing`: the process's own random numbers are this thread's alone."""
    with _RANDOM:
        yield


def _begin_to_draw(purpose: str, seed: int, round: int, client: int) -> None:
    words = generator(seed, purpose, round, client).integers(0, 2**32, 3).tolist()
    random.seed(words[0])
    np.random.seed(words[1])  # noqa: NPY002
    torch.default_generator.manual_seed(words[2])
