"""The sparse weighted average as a streaming sum.

θ[i] = Σ n·θ[i]·m[i] / Σ n·m[i] needs two running sums, whatever the number of clients. Floating-point sums
depend on their order; these are kept in fixed point, where addition is exact. So the result is the same, to
the last bit, in whichever order updates arrive and however partial sums are merged.

Each n·θ is split into a coarse part in units of 2⁻²⁰ and a fine part in units of 2⁻⁶⁰, one int64 each. Every
float32 weight above 7e-12 in magnitude enters exactly, and smaller ones with an error below 2⁻⁶¹.
"""

import torch
from torch import Tensor

from feddst.errors import TrainingError
from feddst.protocol.tensors import Masks, Tensors
from feddst.protocol.update import Update

_COARSE = 2.0**20
_FINE = 2.0**60
_ROOM = 2**42
"""Bound on Σ max|n·θ|: coarse sums stay below 2⁶², and the fine ones below it for 2²² updates."""


class ExactSum:
    """A sum of float tensors of one shape, exact in fixed point."""

    def __init__(self, like: Tensor) -> None:
        self._coarse = torch.zeros(like.shape, dtype=torch.int64, device=like.device)
        self._fine = torch.zeros_like(self._coarse)
        self._bound = 0

    def add(self, terms: Tensor) -> None:
        """Add float64 `terms`."""
        largest = float(terms.abs().max()) if terms.numel() else 0.0
        if not largest < _ROOM:
            raise TrainingError(f"an update holds {largest:g}, too large to average (or not a number)")
        coarse = torch.round(terms * _COARSE)
        fine = torch.round((terms - coarse / _COARSE) * _FINE)
        self._grow(int(largest) + 1)
        self._coarse += coarse.to(torch.int64)
        self._fine += fine.to(torch.int64)

    def merge(self, other: "ExactSum") -> None:
        """Add another sum."""
        self._grow(other._bound)
        self._coarse += other._coarse
        self._fine += other._fine

    def value(self) -> Tensor:
        """The sum as float64."""
        return self._coarse.double() / _COARSE + self._fine.double() / _FINE

    def _grow(self, by: int) -> None:
        self._bound += by
        if self._bound >= _ROOM:
            raise TrainingError("the weights of this round's updates are too large to average")


class SparseSum:
    """Running sums over the updates of a round; `masks` are those the round was broadcast with."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._sums: dict[str, ExactSum] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._holders: dict[str, Tensor] = {}
        self._names: dict[str, list[str]] = {"params": [], "buffers": []}
        self.weight = 0
        self.updates = 0

    def add(self, update: Update) -> None:
        """Add one client's update."""
        masks = self._masks if update.masks is None else update.masks
        self.weight += update.weight
        self.updates += 1
        groups: dict[str, Tensors] = {"params": update.params, "buffers": update.buffers, **update.extra}
        for group, tensors in groups.items():
            for name, value in tensors.items():
                mask = masks.get(name) if group == "params" else None
                self._add_tensor(group, name, value, mask, update.weight)

    def merge(self, other: "SparseSum") -> None:
        """Add the sums of another part of the round's updates."""
        self.weight += other.weight
        self.updates += other.updates
        for group, names in other._names.items():
            mine = self._names.setdefault(group, [])
            mine.extend(name for name in names if name not in mine)
        for key, total in other._sums.items():
            if key in self._sums:
                self._sums[key].merge(total)
                self._holders[key] = self._holders[key] + other._holders[key]
            else:
                self._sums[key] = ExactSum(total._coarse)
                self._sums[key].merge(total)
                self._holders[key] = other._holders[key].clone()
                self._dtypes[key] = other._dtypes[key]

    def mean(self, group: str = "params", *, otherwise: Tensors | None = None) -> dict[str, Tensor]:
        """Each entry over the clients that hold it; where nobody does, `otherwise` or 0.

        `group` is `params`, `buffers`, or the name of an extra such as `gradient`.
        """
        return {name: self._mean(group, name, otherwise) for name in self._names.get(group, [])}

    def held(self) -> dict[str, Tensor]:
        """Which masked weights at least one client holds: the union of the clients' masks."""
        return {
            name: self._holders[f"params/{name}"] > 0
            for name in self._names["params"]
            if self._holders[f"params/{name}"].dim() > 0
        }

    def _add_tensor(self, group: str, name: str, value: Tensor, mask: Tensor | None, weight: int) -> None:
        key = f"{group}/{name}"
        if key not in self._sums:
            self._sums[key] = ExactSum(value)
            self._dtypes[key] = value.dtype
            zero = torch.zeros((), dtype=torch.int64, device=value.device)
            self._holders[key] = zero if mask is None else torch.zeros_like(mask, dtype=torch.int64)
            self._names.setdefault(group, []).append(name)
        terms = value.double() * weight
        self._sums[key].add(terms if mask is None else terms * mask)
        self._holders[key] = self._holders[key] + (weight if mask is None else weight * mask.to(torch.int64))

    def _mean(self, group: str, name: str, otherwise: Tensors | None) -> Tensor:
        key = f"{group}/{name}"
        holders = self._holders[key]
        mean = self._sums[key].value() / holders.clamp(min=1)
        dtype = self._dtypes[key]
        if not dtype.is_floating_point:
            mean = torch.round(mean)
        mean = mean.to(dtype)
        if otherwise is None:
            return mean
        return torch.where(holders > 0, mean, otherwise[name].to(dtype))
