"""Several examples at once: what a network takes in, or what its outputs are compared with.

A batch is a tensor [examples, …], or a tuple or a dict of such tensors: a network is then called with several
arguments, or with arguments by name.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

Batch: TypeAlias = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""Several examples at once, the first dimension of each tensor; a network is called with them as its arguments."""


def tensors_of(batch: Batch) -> list[Tensor]:
    """Its tensors, in order."""
    if isinstance(batch, Tensor):
        return [batch]
    return list(batch.values()) if isinstance(batch, dict) else list(batch)


def mapped(function: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    """The batch with `function` applied to each of its tensors."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, dict):
        return {name: function(value) for name, value in batch.items()}
    return tuple(function(value) for value in batch)


def length(batch: Batch) -> int:
    """How many examples there are."""
    found = tensors_of(batch)
    return found[0].shape[0] if found else 0


def rows(batch: Batch, index: Tensor | slice) -> Batch:
    """The examples at these int64 indices."""
    return mapped(lambda value: value[index], batch)


def placed(batch: Batch, device: torch.device) -> Batch:
    """The same on a device."""
    return mapped(lambda value: value.to(device), batch)


def device_of(batch: Batch) -> torch.device:
    """Where it is."""
    found = tensors_of(batch)
    return found[0].device if found else torch.device("cpu")


def joined(batches: Sequence[Batch]) -> Batch:
    """Batches of one form, one after another."""
    first = batches[0]
    if isinstance(first, Tensor):
        return torch.cat([_tensor(batch) for batch in batches])
    columns = [torch.cat(column) for column in zip(*(tensors_of(batch) for batch in batches), strict=True)]
    return dict(zip(first, columns, strict=True)) if isinstance(first, dict) else tuple(columns)


def same_form(one: Batch, other: Batch) -> bool:
    """Whether two batches differ in nothing but their number of examples and the values."""
    if type(one) is not type(other) or (isinstance(one, dict) and isinstance(other, dict) and [*one] != [*other]):
        return False
    pairs = list(zip(tensors_of(one), tensors_of(other), strict=False))
    whole = len(pairs) == len(tensors_of(one)) == len(tensors_of(other))
    return whole and all(a.shape[1:] == b.shape[1:] and a.dtype == b.dtype for a, b in pairs)


def form_of(batch: Batch) -> str:
    """What one example looks like, in words: `uint8 [1, 28, 28]`."""
    if isinstance(batch, Tensor):
        if not batch.dim():
            return f"one {str(batch.dtype).removeprefix('torch.')}"
        return f"{str(batch.dtype).removeprefix('torch.')} {list(batch.shape[1:])}"
    if isinstance(batch, dict):
        return "{" + ", ".join(f"{name}: {form_of(value)}" for name, value in batch.items()) + "}"
    return "(" + ", ".join(map(form_of, batch)) + ")"


def arguments(inputs: Batch) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """A network's arguments, by place and by name."""
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    return ((), inputs) if isinstance(inputs, dict) else (inputs, {})


def call(module: nn.Module, inputs: Batch) -> Any:
    """What a network gives for these inputs."""
    places, names = arguments(inputs)
    return module(*places, **names)


def divided(outputs: Any, temperature: float) -> Any:
    """A network's outputs, each number divided by `temperature`."""
    return outputs if temperature == 1 else mapped(lambda value: value / temperature, outputs)


def _tensor(batch: Batch) -> Tensor:
    assert isinstance(batch, Tensor)
    return batch
