"""Sums that are exact, in fixed point.

Each number is split into a coarse part in units of 2⁻²⁰ and a fine part in units of 2⁻⁶⁰. Every float32 above 7e-12
in magnitude enters exactly, and smaller ones with an error below 2⁻⁶¹. The parts are whole numbers: float64, which is
faster, while it holds their sums exactly, then int64.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from feddst.errors import TrainingError

try:
    from feddst import _native
except ImportError:
    _native = None  # type: ignore[assignment]

_COARSE = 2.0**20
_FINE = 2.0**60
ROOM = 2**42
"""Bound on Σ max|n·θ|: coarse sums stay below 2⁶², and the fine ones below it for 2²² updates."""

LIGHT_ROOM, LIGHT_UPDATES = 2**33, 2**14
"""Below these bounds sums are below 2⁵³, where float64 holds every whole number."""

Parts = tuple[Tensor, Tensor]
"""Coarse and fine parts, [n] each."""


def in_parts(values: Tensor, weight: int) -> Parts:
    """A tensor times a weight, in parts."""
    terms = values.double().mul_(weight * _COARSE)
    coarse = terms.round()
    return coarse, terms.sub_(coarse).mul_(_FINE / _COARSE).round_()


def sum_in_parts(values: Tensor, weights: Tensor, *, wide: bool) -> Parts:
    """The sum over rows [K, n] of each times its weight, int64 [K], in parts; `wide` as for `ExactSum`."""
    terms = values.double() * (weights.double() * _COARSE)[:, None]
    coarse = terms.round()
    fine = terms.sub_(coarse).mul_(_FINE / _COARSE).round_()
    if wide:
        return coarse.to(torch.int64).sum(0), fine.to(torch.int64).sum(0)
    return coarse.sum(0), fine.sum(0)


def room_for(values: Tensor, weight: int) -> int:
    """What a tensor times a weight adds to the bound."""
    low, high = torch.aminmax(values) if values.numel() else (0.0, 0.0)
    return _room(max(-float(low), float(high)) * weight)


def rooms_for(peaks: Sequence[float], weights: Sequence[int]) -> list[int]:
    """The same for several tensors whose largest magnitudes are known."""
    return [_room(peak * weight) for peak, weight in zip(peaks, weights, strict=True)]


def _room(largest: float) -> int:
    if not largest < ROOM:
        raise TrainingError(f"an update holds {largest:g}, too large to average (or not a number)")
    return int(largest) + 1


def in_a_row(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors flattened and concatenated, [n]; in float64 unless all have one dtype."""
    flat = [value.reshape(-1) for value in tensors] or [torch.empty(0)]
    if len({value.dtype for value in flat}) > 1:
        flat = [value.double() for value in flat]
    return torch.cat(flat)


def value_of(parts: Parts) -> Tensor:
    """The values that the parts make up, float64."""
    coarse, fine = parts
    return (coarse.double() / _COARSE).add_(fine.double(), alpha=1 / _FINE)


class ExactSum:
    """A sum of parts; `wide` if it may become larger than float64 holds exactly."""

    def __init__(self, size: int, device: torch.device, *, wide: bool) -> None:
        dtype = torch.int64 if wide else torch.float64
        zeros = torch.zeros(2, size, dtype=dtype, device=device)
        self.parts = (zeros[0], zeros[1])

    @classmethod
    def of(cls, parts: Parts) -> "ExactSum":
        """A sum given by its parts."""
        known = cls(0, parts[0].device, wide=False)
        known.parts = parts
        return known

    @property
    def device(self) -> torch.device:
        """The device it is on."""
        return self.parts[0].device

    def add_times(self, values: Tensor, weight: int, at: Tensor | None = None) -> None:
        """Add a tensor times a weight: of the same length, or at the flat indices `at`, which are distinct."""
        coarse, fine = self.parts
        light = coarse.dtype is torch.float64 and values.dtype is torch.float32 and not values.is_cuda
        if _native is not None and light:
            places = None if at is None else at.numpy()
            _native.add_exact(values.numpy(), weight * _COARSE, coarse.numpy(), fine.numpy(), places)
        else:
            self.add(in_parts(values, weight), at)

    def add(self, parts: Parts, at: Tensor | None = None) -> None:
        """Add parts: of the same length, or at the flat indices `at`, which are distinct."""
        for total, terms in zip(self.parts, parts, strict=True):
            if at is None:
                total += terms.to(total.dtype)
            else:
                total.index_add_(0, at, terms.to(total.dtype))

    def widen(self) -> None:
        """Make room for larger numbers."""
        coarse, fine = self.parts
        self.parts = (coarse.to(torch.int64), fine.to(torch.int64))
