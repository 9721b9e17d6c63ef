"""Data as people have them, as records: pairs of arrays, PyTorch's data sets and loaders."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, default_collate

from feddst.core.batches import Batch, tensors_of
from feddst.core.examples import is_labels
from feddst.data.records import Augment, ReadRecords, Records, StoredRecords, as_targets
from feddst.errors import DataError

Array: TypeAlias = npt.NDArray[Any] | Tensor
Arrays: TypeAlias = Array | tuple[Array, ...] | Mapping[str, Array]
Pair: TypeAlias = tuple[Arrays, Arrays]
Source: TypeAlias = Any
"""A pair (inputs, targets) of arrays, a map-style `torch.utils.data.Dataset`, a `DataLoader`, or `Records`."""


def as_records(
    name: str,
    part: str,
    source: Source,
    *,
    inputs: str | Sequence[str] = (),
    target: str | Sequence[str] = (),
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    augment: Augment | None = None,
) -> Records:
    """Any kind of source as records; `name` and `part` are for messages.

    `inputs` and `target` choose among the fields of items that are dicts.
    """
    if isinstance(source, Records):
        return source
    if isinstance(source, DataLoader):
        collate = None if source.collate_fn is default_collate else source.collate_fn
        return _read(f"{name}: {part}", source.dataset, inputs, target, collate)
    if isinstance(source, TensorDataset):
        *given, wanted = source.tensors
        source = (given[0] if len(given) == 1 else tuple(given)), wanted
    if isinstance(source, tuple | list) and len(source) == 2:
        stored, targets = as_batch(name, f"{part} inputs", source[0]), as_batch(name, f"{part} targets", source[1])
        return StoredRecords(with_channel(stored), as_targets(targets), tuple(mean), tuple(std), augment)
    if isinstance(source, IterableDataset):
        raise DataError(f"{name}: {part} is an IterableDataset, which has no length; use a map-style Dataset")
    if (
        hasattr(source, "__len__")
        and hasattr(source, "__getitem__")
        and not isinstance(source, tuple | list | dict | str)
    ):
        return _read(f"{name}: {part}", source, inputs, target, None)
    raise DataError(
        f"{name}: {part} must be a pair (inputs, targets) of arrays or tensors, a torch Dataset with a length or a "
        f"DataLoader, got {name_of(source)}"
    )


def with_channel(inputs: Batch) -> Batch:
    """uint8 images [N, H, W] with a channel dimension; all else as it is."""
    grey = isinstance(inputs, Tensor) and inputs.dtype == torch.uint8 and inputs.ndim == 3
    return inputs.unsqueeze(1) if isinstance(inputs, Tensor) and grey else inputs


def as_batch(name: str, part: str, arrays: Arrays) -> Batch:
    """An array, or a tuple or dict of arrays, as tensors."""
    if isinstance(arrays, Mapping):
        return _checked(
            name, part, {str(key): as_tensor(f"{name}: {part} {key!r}", one) for key, one in arrays.items()}
        )
    if isinstance(arrays, tuple):
        return _checked(name, part, tuple(as_tensor(f"{name}: {part}", one) for one in arrays))
    return as_tensor(f"{name}: {part}", arrays)


def as_tensor(what: str, array: Any) -> Tensor:
    """An array as a tensor in memory that may be written to; `what` is for messages."""
    if isinstance(array, Tensor):
        return array.detach().cpu()
    try:
        array = np.asarray(array)
    except ValueError as error:
        raise DataError(f"{what}: {name_of(array)} is no array of numbers: {error}") from None
    try:
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        # torch warns about arrays it could write to by mistake, so those are copied.
        return torch.from_numpy(np.require(native, requirements=["C", "W"]))
    except TypeError:
        raise DataError(f"{what}: arrays must hold numbers, got {array.dtype}") from None


def name_of(value: object) -> str:
    """What was given, in words."""
    size = f" of {len(value)}" if isinstance(value, tuple | list | dict) else ""
    return f"{type(value).__name__}{size}"


def _checked(name: str, part: str, batch: Batch) -> Batch:
    sizes = {len(one) if one.dim() else 0 for one in tensors_of(batch)}
    if len(sizes) != 1:
        raise DataError(f"{name}: {part} must have equally many examples each, got {sorted(sizes)}")
    return batch


def _read(
    name: str, source: Any, inputs: str | Sequence[str], target: str | Sequence[str], collate: Callable[..., Any] | None
) -> Records:
    split = _Fields(_names(inputs), _names(target)) if inputs or target else split_item
    found = ReadRecords(source, split, name, collate)
    if not len(found):
        raise DataError(f"{name} has no items")
    known = _known_targets(source)
    if known is not None and collate is None:
        first = found.read(np.arange(1)).targets
        if isinstance(first, Tensor) and first.shape == known[:1].shape and bool((first == known[:1]).all()):
            return ReadRecords(source, split, name, collate, known)
    return found


def split_item(item: Any) -> tuple[Any, Any]:
    """The inputs and the target of an item: (inputs, target), or several inputs and the target last."""
    if isinstance(item, tuple | list) and len(item) >= 2:
        *inputs, target = item
        return (inputs[0] if len(inputs) == 1 else tuple(inputs)), target
    raise DataError(
        f"an item must be a pair (inputs, target), got {name_of(item)}; of items that are dicts, say which fields they "
        "are: inputs=… and target=…"
    )


@dataclass(frozen=True)
class _Fields:
    """Takes fields of a dict as inputs and target; without `inputs` all but the target."""

    inputs: tuple[str, ...]
    target: tuple[str, ...]

    def __call__(self, item: Any) -> tuple[Any, Any]:
        if not isinstance(item, Mapping):
            raise DataError(f"inputs= and target= are for items that are dicts, got {name_of(item)}")
        inputs = self.inputs or tuple(name for name in item if name not in self.target)
        for name in (*inputs, *self.target):
            if name not in item:
                raise DataError(f"an item has no field {name!r}, it has {', '.join(map(str, item))}")
        if not self.target:
            raise DataError(f"say which field is the target: target=…, one of {', '.join(map(str, item))}")
        return _some(item, inputs), _some(item, self.target)


def _some(item: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return item[names[0]] if len(names) == 1 else {name: item[name] for name in names}


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _known_targets(source: Any) -> Tensor | None:
    """The labels that a data set tells without its items being read, as torchvision's do."""
    if isinstance(source, Subset):
        whole = _known_targets(source.dataset)
        return None if whole is None else whole[torch.tensor(list(source.indices), dtype=torch.int64)]
    for name in ("targets", "labels", "_labels"):
        found = getattr(source, name, None)
        if isinstance(found, list | tuple | np.ndarray | Tensor) and len(found) == len(source):
            try:
                labels = torch.as_tensor(np.asarray(found))
            except (TypeError, ValueError):
                continue
            if labels.dtype in (torch.int64, torch.int32, torch.uint8) and is_labels(labels.long()):
                return labels.long()
    return None
