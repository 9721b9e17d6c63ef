"""Metrics: how good a model's outputs are, over any set of examples."""

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from feddst.core.batches import Batch


@dataclass(frozen=True)
class Metric(ABC):
    """A figure for a model on some examples: `name` is what users read and type.

    `higher_is_better` says which models it prefers. One that is a share of something is shown in `percent`. A metric is
    a `Mean`, which is put together from what each example adds to it, or a `Whole`, which needs all examples at once.
    """

    name: str
    higher_is_better: bool = True
    percent: bool = False

    def best(self, values: Sequence[float]) -> float:
        """The best of some values."""
        return max(values) if self.higher_is_better else min(values)

    @property
    def heading(self) -> str:
        """Its name with its unit: `accuracy [%]` or `rmse`."""
        return f"{self.name} [%]" if self.percent else self.name

    def merit(self, value: float) -> float:
        """A value of which more is better, whatever the direction."""
        return value if self.higher_is_better else -value

    def shown(self, value: float) -> float:
        """A value as it is shown: per cent of a share."""
        return 100 * value if self.percent else value

    def text(self, value: float, decimals: int = 1) -> str:
        """A value in a line of text: `93.1 %` or `0.0412`; `decimals` are those of per cent."""
        return f"{100 * value:.{decimals}f} %" if self.percent else f"{value:.4g}"


def plain(metric: Metric) -> Metric:
    """What is written down of a metric: its name, its direction and its unit."""
    return Metric(metric.name, metric.higher_is_better, metric.percent)


def ratio(sums: Tensor) -> float:
    """The first sum divided by the second."""
    return float(sums[0] / sums[1])


@dataclass(frozen=True)
class Mean(Metric):
    """A metric put together from what each example adds to it.

    `parts` gives [examples], of which the mean is taken, or [examples, k], whose sums over the examples `value` turns
    into the figure: by default the first sum divided by the second.
    """

    parts: Callable[[Any, Any], Tensor] | None = None
    value: Callable[[Tensor], float] = ratio

    def added(self, outputs: Batch, targets: Batch) -> Tensor:
        """What each example adds, float64 [examples, k]."""
        assert self.parts is not None
        found = self.parts(outputs, targets).detach().cpu().double()
        return torch.stack([found, torch.ones_like(found)], dim=1) if found.dim() == 1 else found

    def of(self, added: Tensor) -> float:
        """The figure for examples that add this, [examples, k]."""
        return self.value(added.sum(0))


@dataclass(frozen=True)
class Whole(Metric):
    """A metric that needs all outputs and targets at once, such as the area under a curve."""

    function: Callable[[Any, Any], Any] | None = None

    def of(self, outputs: Batch, targets: Batch) -> float:
        """The figure for these examples."""
        assert self.function is not None
        return float(self.function(outputs, targets))
