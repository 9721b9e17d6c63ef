"""Numbers: how far the outputs are from the targets."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from feddst.core import LocalTraining
from feddst.core.batches import Batch, form_of
from feddst.core.metric import Metric
from feddst.core.objective import Objective, Reduction
from feddst.core.registry import register
from feddst.errors import DataError, ModelError
from feddst.objectives import metrics
from feddst.objectives.cross_entropy import described


class _Regression(Objective):
    """outputs: [examples, numbers …]; targets: the same shape, or [examples] for one number.

    An example's loss is the mean over its numbers.
    """

    @abstractmethod
    def mean_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean of the losses of all numbers; both have the same shape."""

    def loss(self, outputs: Any, targets: Any, reduction: Reduction = "mean") -> Tensor:
        mean = self.mean_loss(outputs, targets.reshape(outputs.shape).to(outputs.dtype))
        return mean if reduction == "mean" else mean * len(outputs)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics.RMSE, metrics.MAE, metrics.R2

    def outputs_for(self, targets: Batch, classes: int) -> int:
        assert isinstance(targets, Tensor)
        return targets.shape[1:].numel()

    def check_targets(self, targets: Batch, classes: int) -> None:
        if not isinstance(targets, Tensor):
            raise DataError(f"local.objective {self.name} needs numbers as targets, got {form_of(targets)}")

    def check_outputs(self, outputs: Any, targets: Batch, classes: int) -> None:
        assert isinstance(targets, Tensor)
        shapes = {tuple(targets.shape)}
        if targets[0].numel() == 1:
            shapes |= {(len(targets),), (len(targets), 1)}
        if not isinstance(outputs, Tensor) or tuple(outputs.shape) not in shapes:
            wanted = ", ".join(["examples", *map(str, targets.shape[1:] or (1,))])
            raise ModelError(f"the model must give numbers of shape [{wanted}], got {described(outputs)}")


@register
class SquaredError(_Regression):
    """(output − target)²."""

    name: ClassVar[str] = "squared-error"

    def mean_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs, targets)


@register
class AbsoluteError(_Regression):
    """|output − target|."""

    name: ClassVar[str] = "absolute-error"

    def mean_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.l1_loss(outputs, targets)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics.MAE, metrics.RMSE, metrics.R2


@register
@dataclass(frozen=True)
class Huber(_Regression):
    """Half the square of an error up to `delta`, beyond that `delta` times the error less half of `delta`."""

    name: ClassVar[str] = "huber"
    heeds: ClassVar[tuple[str, ...]] = ("huber_delta",)

    delta: float = 1.0

    def mean_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.huber_loss(outputs, targets, delta=self.delta)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics.MAE, metrics.RMSE, metrics.R2

    def with_options(self, local: LocalTraining) -> Objective:
        return replace(self, delta=local.huber_delta)
