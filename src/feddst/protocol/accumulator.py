"""The sparse weighted average as a streaming sum.

θ[i] = Σ n·θ[i]·m[i] / Σ n·m[i] needs two running sums, whatever the number of clients. Floating-point sums
depend on their order; these are kept in fixed point, where addition is exact. So the result is the same, to
the last bit, in whichever order updates arrive and however partial sums are merged.

Each n·θ is split into a coarse part in units of 2⁻²⁰ and a fine part in units of 2⁻⁶⁰, one int64 each. Every
float32 weight above 7e-12 in magnitude enters exactly, and smaller ones with an error below 2⁻⁶¹.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from feddst.errors import TrainingError
from feddst.protocol.tensors import Masks, Tensors, positions_of
from feddst.protocol.update import Update

_COARSE = 2.0**20
_FINE = 2.0**60
ROOM = 2**42
"""Bound on Σ max|n·θ|: coarse sums stay below 2⁶², and the fine ones below it for 2²² updates."""


class ExactSum:
    """A sum of float tensors of one shape, exact in fixed point."""

    def __init__(self, shape: Sequence[int], device: torch.device) -> None:
        self._coarse = torch.zeros(tuple(shape), dtype=torch.int64, device=device)
        self._fine = torch.zeros_like(self._coarse)
        self._bound = 0

    def add(self, terms: Tensor, at: Tensor | None = None) -> None:
        """Add float64 `terms`, of the sum's shape or [len(at)] at the flat indices `at`, each named once."""
        largest = float(terms.abs().max()) if terms.numel() else 0.0
        if not largest < ROOM:
            raise TrainingError(f"an update holds {largest:g}, too large to average (or not a number)")
        coarse = torch.round(terms * _COARSE)
        fine = torch.round((terms - coarse / _COARSE) * _FINE)
        self._grow(int(largest) + 1)
        add_at(self._coarse, coarse.to(torch.int64), at)
        add_at(self._fine, fine.to(torch.int64), at)

    def copy(self) -> "ExactSum":
        """The same sum again."""
        same = ExactSum(self._coarse.shape, self._coarse.device)
        same.merge(self)
        return same

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
        if self._bound >= ROOM:
            raise TrainingError("the weights of this round's updates are too large to average")


def add_at(total: Tensor, terms: Tensor, at: Tensor | None) -> None:
    """Add to a whole tensor, or at the flat indices `at`."""
    if at is None:
        total += terms
    else:
        total.view(-1).index_add_(0, at, terms)


class SparseSum:
    """Running sums over the updates of a round; `masks` are those the round was broadcast with."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._positions = positions_of(masks)
        self._sums: dict[str, ExactSum] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._holders: dict[str, Tensor] = {}
        self._names: dict[str, list[str]] = {"params": [], "buffers": []}
        self.weight = 0
        self.updates = 0

    def add(self, update: Update) -> None:
        """Add one client's update."""
        masks = self._masks if update.masks is None else update.masks
        positions = self._positions if update.masks is None else positions_of(masks)
        self.weight += update.weight
        self.updates += 1
        groups: dict[str, Tensors] = {"params": update.params, "buffers": update.buffers, **update.extra}
        for group, tensors in groups.items():
            for name, value in tensors.items():
                at = positions.get(name) if group == "params" else None
                shape = value.shape if at is None else masks[name].shape
                self._add_tensor(f"{group}/{name}", value, at, shape, update.weight)
                mine = self._names.setdefault(group, [])
                if name not in mine:
                    mine.append(name)

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
                self._sums[key] = total.copy()
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

    def _add_tensor(self, key: str, value: Tensor, at: Tensor | None, shape: torch.Size, weight: int) -> None:
        if key not in self._sums:
            self._sums[key] = ExactSum(shape, value.device)
            self._dtypes[key] = value.dtype
            self._holders[key] = torch.zeros(() if at is None else shape, dtype=torch.int64, device=value.device)
        self._sums[key].add(value.double() * weight, at)
        add_at(self._holders[key], torch.full(() if at is None else value.shape, weight, device=value.device), at)

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
