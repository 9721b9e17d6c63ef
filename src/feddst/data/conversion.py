"""From what people have (arrays, tensors, images, numbers) to tensors, and from those to a network's inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from feddst.core.batches import Batch, form_of, mapped, tensors_of
from feddst.errors import DataError


def as_tensor(what: str, value: Any) -> Tensor:
    """A tensor, array, image, number or nested list as a tensor in memory that may be written to.

    `what` is for messages.
    """
    if isinstance(value, Tensor):
        return _plain(what, value)
    if hasattr(value, "getbands"):  # an image of Pillow's
        value = np.array(value)
    if not _may_be_numbers(value):
        raise DataError(f"{what} must be numbers (an array, a tensor, an image, a number), got {name_of(value)}")
    try:
        found = np.asarray(value)
    except ValueError:
        raise DataError(
            f"{what}: {name_of(value)} items of different shapes is no array; make them alike, by padding or a "
            "transform, or give a DataLoader with a collate_fn that does"
        ) from None
    except Exception as error:
        raise DataError(f"{what}: {name_of(value)} is no array: {_reason(error)}") from None
    if found.dtype.kind not in "biuf":
        raise DataError(f"{what} must be numbers, got {_kind(found)}")
    if found.dtype.kind == "u" and found.dtype.itemsize > 1:
        found = found.astype(np.int64)
    if found.dtype.kind == "f" and found.dtype.itemsize > 8:
        found = found.astype(np.float64)
    native = found.astype(found.dtype.newbyteorder("="), copy=False)
    # torch warns about arrays it could write to by mistake, so those are copied.
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))


def as_item(what: str, value: Any) -> Batch:
    """The inputs, or the target, of one item; those of several arguments are each a tensor of their own."""
    if isinstance(value, Mapping):
        return {str(name): as_tensor(f"{what} {name!r}", one) for name, one in value.items()}
    if isinstance(value, tuple) or (isinstance(value, list) and value and all(map(_is_array, value))):
        return tuple(as_tensor(what, one) for one in value)
    found = as_tensor(what, value)
    # Pillow has channels last; a grey image gets its channel with the others.
    return found.movedim(-1, 0) if hasattr(value, "getbands") and found.dim() == 3 else found


def with_channel(inputs: Batch) -> Batch:
    """uint8 images [N, H, W] with a channel dimension; all else as it is."""
    grey = isinstance(inputs, Tensor) and inputs.dtype == torch.uint8 and inputs.ndim == 3
    return inputs.unsqueeze(1) if isinstance(inputs, Tensor) and grey else inputs


def as_inputs(stored: Tensor, mean: Sequence[float] = (), std: Sequence[float] = ()) -> Tensor:
    """A network's inputs: uint8 is scaled to [0, 1], other floats and booleans become float32; both are normalised.

    Other integers, which may be tokens, are unchanged.
    """
    if stored.dtype == torch.uint8:
        return _normalised_in_place(stored.float().div_(255), mean, std)
    if stored.dtype.is_floating_point:
        return _normalised_in_place(stored.clone(), mean, std).float() if mean else stored.float()
    return stored.float() if stored.dtype == torch.bool else stored


def as_targets(targets: Batch) -> Batch:
    """Targets in the precision that they are compared in: integers int64, other numbers float32."""
    return mapped(
        lambda value: value.float() if value.is_floating_point() or value.dtype == torch.bool else value.long(), targets
    )


def check_normalisation(name: str, inputs: Batch, mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise `DataError` unless `mean` and `std` can normalise inputs like these."""
    if not mean and not std:
        return
    if not isinstance(inputs, Tensor) or not (inputs.dtype == torch.uint8 or inputs.is_floating_point()):
        raise DataError(f"{name}: mean and std are for floats and uint8 images, got {form_of(inputs)}")
    channels = inputs.shape[1] if inputs.dim() > 1 else 0
    if len(mean) != channels or len(std) != channels:
        raise DataError(f"{name}: mean and std need {channels} numbers, one a channel, got {len(mean)} and {len(std)}")
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and min(std) > 0):
        raise DataError(f"{name}: mean must be finite and std above 0, got {mean} and {std}")


def as_numbers(what: str, values: Any) -> tuple[float, ...]:
    """A number, or a sequence of numbers; `what` is for messages."""
    try:
        found = np.asarray(values, np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise DataError(f"{what} must be numbers, one a channel, got {values!r}") from None
    return tuple(found.tolist())


def unbounded(batch: Batch) -> Tensor | None:
    """The positions of examples that hold NaN or infinity; None if there are none."""
    for value in tensors_of(batch):
        if value.is_floating_point() and value.numel() and not torch.isfinite(value).all():
            return torch.isfinite(value.reshape(len(value), -1)).all(1).logical_not().nonzero()[:, 0]
    return None


def name_of(value: object) -> str:
    """What was given, in words."""
    if isinstance(value, str):
        return f"text {value[:20]!r}"
    if value is None:
        return "None"
    size = f" of {len(value)}" if isinstance(value, tuple | list | dict) else ""
    return f"{type(value).__name__}{size}"


def _normalised_in_place(values: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    if not mean:
        return values
    shape = (-1, *[1] * (values.ndim - 2))
    values.sub_(torch.tensor(tuple(mean), dtype=values.dtype, device=values.device).view(shape))
    return values.div_(torch.tensor(tuple(std), dtype=values.dtype, device=values.device).view(shape))


def _plain(what: str, value: Tensor) -> Tensor:
    if value.layout != torch.strided:
        raise DataError(f"{what} must be dense, got a sparse tensor; call its to_dense()")
    if value.is_complex() or value.is_quantized:
        raise DataError(f"{what} must be real numbers, got {str(value.dtype).removeprefix('torch.')}")
    found = value.detach().cpu()
    return found.long() if found.dtype in (torch.uint16, torch.uint32, torch.uint64) else found


def _may_be_numbers(value: Any) -> bool:
    return isinstance(value, bool | int | float | list | tuple | np.generic) or hasattr(value, "__array__")


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray) and value.ndim > 0


def _kind(found: np.ndarray[Any, Any]) -> str:
    words = {"U": "text", "S": "text", "O": "objects", "M": "dates", "m": "durations", "c": "complex numbers"}
    return f"an array of {words.get(found.dtype.kind, 'other values')} ({found.dtype})"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
