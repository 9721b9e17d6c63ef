"""Which tensors a payload has, in which order: both ends know it before anything is sent."""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch

from feddst.core import Broadcast, ClientPlan, Tensors
from feddst.errors import ModelError

_CARRIED = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Field:
    """One tensor. `group` is `params`, `buffers`, or the name of a report such as `gradient`."""

    group: str
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @cached_property
    def size(self) -> int:
        """How many values it has when nothing is masked."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes these values take in their own number format."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """The tensors of a payload in their order: parameters, buffers, reports, each group by name."""

    fields: tuple[Field, ...]

    @cached_property
    def fingerprint(self) -> int:
        """A hash of 64 bits that tells layouts apart."""
        lines = [f"{f.group} {f.name} {'×'.join(map(str, f.shape))} {str(f.dtype)[6:]}" for f in self.fields]
        digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    @cached_property
    def params(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.group == "params")

    @cached_property
    def buffers(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.group == "buffers")

    @cached_property
    def coded(self) -> tuple[Field, ...]:
        """The tensors whose values a codec carries: all but the buffers, which go as they are."""
        return tuple(field for field in self.fields if field.group != "buffers")

    @cached_property
    def weights(self) -> int:
        """How many values the parameters have when nothing is masked."""
        return sum(field.size for field in self.params)

    @cached_property
    def coded_sizes(self) -> tuple[int, ...]:
        """How many values each coded tensor has when nothing is masked."""
        return tuple(field.size for field in self.coded)

    @cached_property
    def buffer_bytes(self) -> int:
        """The bytes of all buffers, each in its own number format."""
        return sum(field.bytes for field in self.buffers)

    @cached_property
    def reports(self) -> tuple[str, ...]:
        """The groups beyond the model itself."""
        return tuple(dict.fromkeys(f.group for f in self.fields if f.group not in ("params", "buffers")))


def model_layout(params: Tensors, buffers: Tensors) -> Layout:
    """The layout of a broadcast."""
    for name, value in params.items():
        if value.dtype not in _CARRIED:
            allowed = ", ".join(str(dtype)[6:] for dtype in _CARRIED)
            raise ModelError(f"parameter {name} is {str(value.dtype)[6:]}; what can be sent is {allowed}")
    for name, value in buffers.items():
        if value.dtype.is_complex:
            raise ModelError(f"buffer {name} is {str(value.dtype)[6:]}; what can be sent is real numbers")
    return Layout((*_fields("params", params), *_fields("buffers", buffers)))


def update_layout(sent: Broadcast, plan: ClientPlan) -> Layout:
    """The layout of an update from a client with this plan."""
    params = {name: value for name, value in sent.params.items() if plan.train and name not in plan.keep}
    model = model_layout(params, sent.buffers if plan.train else {})
    reports = [field for group in plan.groups for field in _fields(group, sent.params)]
    return Layout((*model.fields, *reports))


def _fields(group: str, tensors: Tensors) -> Iterable[Field]:
    return [Field(group, name, tuple(value.shape), value.dtype) for name, value in sorted(tensors.items())]
