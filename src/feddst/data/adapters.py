"""Data as people have them, as records: pairs of arrays, PyTorch's data sets and loaders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
)

from feddst.core.batches import Batch, tensors_of
from feddst.core.examples import is_labels
from feddst.data.conversion import as_numbers, as_targets, as_tensor, name_of, with_channel
from feddst.data.records import Augment, Collate, ReadRecords, Records, StoredRecords, spread
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
    what, chosen = f"{name}: {part}", (_names(inputs), _names(target))
    mean, std = as_numbers(f"{name}: mean", mean), as_numbers(f"{name}: std", std)
    if augment is not None and not callable(augment):
        raise DataError(f"{name}: augment must be a function of inputs, got {name_of(augment)}")
    if isinstance(source, DataLoader) and source.collate_fn not in (default_collate, default_convert):
        return _read(what, _sized(what, source.dataset), chosen, cast(Collate, source.collate_fn), mean, std, augment)
    if isinstance(source, DataLoader):
        source = source.dataset
    if (stored := _tensors_in(source)) is not None:
        *given, wanted = stored
        source = (given[0] if len(given) == 1 else tuple(given)), wanted
    elif isinstance(source, Mapping):
        source = _columns(what, source, chosen)
    elif isinstance(source, tuple | list):
        _refuse_names(what, chosen)
    if isinstance(source, tuple | list) and len(source) == 2:
        arrays = as_batch(name, f"{part} inputs", source[0]), as_batch(name, f"{part} targets", source[1])
        return StoredRecords(with_channel(arrays[0]), as_targets(arrays[1]), mean, std, augment)
    return _read(what, _sized(what, source), chosen, None, mean, std, augment)


def _sized(what: str, source: Any) -> Any:
    """A data set whose items can be read by their number; raises `DataError` if it is none."""
    if isinstance(source, IterableDataset):
        raise DataError(f"{what} is an IterableDataset, whose items have no numbers; give a map-style Dataset")
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        raise DataError(
            f"{what} must be no {type(source).__name__}; give its numbers: (frame[[…]].to_numpy(), frame[…].to_numpy())"
        )
    if isinstance(source, str | bytes | Path | set | tuple | list | np.ndarray | Tensor) or not (
        hasattr(source, "__len__") and hasattr(source, "__getitem__")
    ):
        raise DataError(
            f"{what} must be a pair (inputs, targets) of arrays or tensors, a torch Dataset with a length or a "
            f"DataLoader, got {name_of(source)}"
        )
    try:
        size = len(source)
    except Exception as error:
        raise DataError(
            f"{what} must have a length, but len() of {type(source).__name__} says {type(error).__name__}: {error}"
        ) from None
    if not size:
        raise DataError(f"{what} has no examples")
    return source


def _tensors_in(source: Any) -> list[Any] | None:
    """The tensors of a `TensorDataset`, or of a part of one."""
    if isinstance(source, TensorDataset):
        return list(source.tensors)
    if isinstance(source, Subset) and (whole := _tensors_in(source.dataset)) is not None:
        index = torch.tensor(list(source.indices), dtype=torch.int64)
        return [tensor[index] for tensor in whole]
    return None


def _columns(what: str, source: Mapping[str, Any], chosen: "_Chosen") -> tuple[Any, Any]:
    """The inputs and targets of a mapping of arrays, such as an npz file."""
    names = ", ".join(map(str, source))
    if any(hasattr(one, "column_names") for one in source.values()):
        raise DataError(f"{what} holds several data sets ({names}); give one of them")
    if not chosen[1]:
        raise DataError(f"{what}: say which of its arrays is the target: target=…, one of {names}")
    try:
        return _Fields(*chosen)(source)
    except DataError as error:
        raise DataError(f"{what}: {error}") from None


def _refuse_names(what: str, chosen: "_Chosen") -> None:
    if any(chosen):
        raise DataError(f"{what}: inputs= and target= choose among fields with names, but it is a pair of arrays")


def as_batch(name: str, part: str, arrays: Arrays) -> Batch:
    """An array, or a tuple or dict of arrays, as tensors; a tuple of numbers is an array."""
    if isinstance(arrays, Mapping):
        return _checked(
            name, part, {str(key): as_tensor(f"{name}: {part} {key!r}", one) for key, one in arrays.items()}
        )
    if isinstance(arrays, tuple) and not all(isinstance(one, int | float) for one in arrays):
        return _checked(name, part, tuple(as_tensor(f"{name}: {part}", one) for one in arrays))
    found = as_tensor(f"{name}: {part}", arrays)
    if not found.dim():
        raise DataError(f"{name}: {part} must be an array with one row for each example, got a single number")
    return found


def _checked(name: str, part: str, batch: Batch) -> Batch:
    if not tensors_of(batch):
        raise DataError(f"{name}: {part} must hold at least one array, got none")
    sizes = {len(one) if one.dim() else 0 for one in tensors_of(batch)}
    if len(sizes) != 1:
        raise DataError(f"{name}: {part} must have equally many examples each, got {sorted(sizes)}")
    return batch


_Chosen: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""The names of inputs and of targets among an item's fields."""


def _read(
    name: str,
    source: Any,
    chosen: _Chosen,
    collate: Collate | None,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    augment: Augment | None,
) -> Records:
    split = _Fields(*chosen) if any(chosen) else split_item
    _check_fields(name, source, chosen)
    found = ReadRecords(source, split, name, collate, None, mean, std, augment)
    known = _known_targets(source, chosen[1])
    if known is None or collate is not None:
        return found
    some = spread(len(found))
    seen = found.read(some).targets
    same = isinstance(seen, Tensor) and seen.shape == (len(some),) and bool((seen == known[some]).all())
    return replace(found, known=known) if same else found


def _check_fields(name: str, source: Any, chosen: _Chosen) -> None:
    """Raise `DataError` if a data set that names its columns lacks one that is chosen."""
    columns = getattr(source, "column_names", None)
    if not isinstance(columns, list):
        return
    if not chosen[1]:
        raise DataError(f"{name}: say which column is the target: target=…, one of {', '.join(columns)}")
    for column in (*chosen[0], *chosen[1]):
        if column not in columns:
            raise DataError(f"{name} has no column {column!r}, it has {', '.join(columns)}")


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
    found = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, tuple | list) else (None,)
    if not all(isinstance(one, str) for one in found):
        raise DataError(f"inputs= and target= must be a name or a list of names, got {names!r}")
    return tuple(map(str, found))


def _known_targets(source: Any, target: tuple[str, ...] = ()) -> Tensor | None:
    """The labels that a data set tells without its items being read, as torchvision's and Hugging Face's do."""
    if isinstance(source, Subset):
        whole = _known_targets(source.dataset, target)
        return None if whole is None else whole[torch.tensor(list(source.indices), dtype=torch.int64)]
    if isinstance(source, ConcatDataset):
        parts = [_known_targets(part, target) for part in source.datasets]
        known = [part for part in parts if part is not None]
        return torch.cat(known) if len(known) == len(parts) else None
    if getattr(source, "target_transform", None) is not None:
        return None
    if len(target) == 1 and _class_names(source, target[0]):
        return _as_labels(list(source.with_format(None)[target[0]]), len(source))
    for name in ("targets", "labels", "_labels"):
        found = getattr(source, name, None)
        if isinstance(found, list | tuple | np.ndarray | Tensor) and len(found) == len(source):
            labels = _as_labels(found, len(source))
            if labels is not None:
                return labels
    return None


def _as_labels(found: Any, size: int) -> Tensor | None:
    try:
        labels = torch.as_tensor(np.asarray(found))
    except (TypeError, ValueError):
        return None
    whole = labels.dtype in (torch.int64, torch.int32, torch.uint8) and is_labels(labels.long())
    return labels.long() if whole and len(labels) == size else None


def classes_of(source: Any, target: str | Sequence[str] = ()) -> tuple[str, ...]:
    """The names of classes that a data set tells: `classes` of torchvision's, a `ClassLabel` of Hugging Face's."""
    names = _names(target)
    if isinstance(source, DataLoader | Subset):
        return classes_of(source.dataset, target)
    if len(names) == 1 and (found := _class_names(source, names[0])):
        return found
    classes = getattr(source, "classes", None)
    if not isinstance(classes, list | tuple) or not all(isinstance(one, str) for one in classes):
        return ()
    labels = _known_targets(source)
    return tuple(classes) if labels is not None and 0 <= int(labels.max()) < len(classes) else ()


def _class_names(source: Any, target: str) -> tuple[str, ...]:
    """The names of a column's classes, where a Hugging Face data set has them."""
    features = getattr(source, "features", None)
    found = getattr(features.get(target), "names", None) if isinstance(features, Mapping) else None
    return tuple(found) if isinstance(found, list | tuple) else ()
