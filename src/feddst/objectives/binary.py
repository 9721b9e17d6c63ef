"""Yes or no: one question for each example, or several."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from feddst.core import LocalTraining
from feddst.core.batches import Batch, form_of
from feddst.core.metric import Metric
from feddst.core.objective import Objective, Reduction
from feddst.core.registry import register
from feddst.errors import DataError, ModelError, OptionError
from feddst.objectives import metrics
from feddst.objectives.cross_entropy import described


@register
@dataclass(frozen=True)
class Binary(Objective):
    """One yes or no for each example: binary cross-entropy of a score, whose sigmoid is the probability of yes.

    outputs: [examples] or [examples, 1]; targets: 0 or 1, [examples] or [examples, 1]. With `class_weights`, two
    numbers, an example counts with the weight of its class.
    """

    name: ClassVar[str] = "binary"
    heeds: ClassVar[tuple[str, ...]] = ("class_weights",)

    class_weights: tuple[float, ...] = ()

    def loss(self, outputs: Any, targets: Any, reduction: Reduction = "mean") -> Tensor:
        wanted = targets.reshape(outputs.shape).to(outputs.dtype)
        weight = self._weights(wanted) if self.class_weights else None
        total = F.binary_cross_entropy_with_logits(outputs, wanted, weight=weight, reduction="sum")
        if reduction == "sum":
            return total
        return total / (len(wanted) if weight is None else weight.sum())

    def terms(self, targets: Any) -> float:
        return float(self._weights(targets).sum()) if self.class_weights else len(targets)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics.BINARY_ACCURACY, metrics.F1, metrics.AUC

    def outputs_for(self, targets: Batch, classes: int) -> int:
        return 1

    def check_targets(self, targets: Batch, classes: int) -> None:
        one = isinstance(targets, Tensor) and targets.numel() == len(targets)
        _check_answers(self.name, targets if one else None, targets, "one 0 or 1 for each example")
        if self.class_weights and len(self.class_weights) != 2:
            raise OptionError(f"local.class_weights must have 2 numbers, for no and yes, got {len(self.class_weights)}")

    def check_outputs(self, outputs: Any, targets: Batch, classes: int) -> None:
        if not isinstance(outputs, Tensor) or outputs.shape not in ((2,), (2, 1)):
            raise ModelError(f"the model must give one score for each example, [examples, 1], got {described(outputs)}")

    def with_options(self, local: LocalTraining) -> Objective:
        return replace(self, class_weights=local.class_weights) if local.class_weights else self

    def _weights(self, targets: Tensor) -> Tensor:
        no, yes = self.class_weights
        return torch.where(targets > 0.5, yes, no)


@register
@dataclass(frozen=True)
class MultiLabel(Objective):
    """Several answers for each example: the mean of their binary cross-entropies.

    outputs: a score for each question, [examples, questions]; targets: 0 or 1, [examples, questions].
    """

    name: ClassVar[str] = "multi-label"

    def loss(self, outputs: Any, targets: Any, reduction: Reduction = "mean") -> Tensor:
        mean = F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))
        return mean if reduction == "mean" else mean * len(outputs)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics.F1, metrics.BINARY_ACCURACY

    def outputs_for(self, targets: Batch, classes: int) -> int:
        assert isinstance(targets, Tensor)
        return targets.shape[1]

    def check_targets(self, targets: Batch, classes: int) -> None:
        several = isinstance(targets, Tensor) and targets.dim() == 2
        _check_answers(self.name, targets if several else None, targets, "a 0 or 1 for each question")

    def check_outputs(self, outputs: Any, targets: Batch, classes: int) -> None:
        assert isinstance(targets, Tensor)
        if not isinstance(outputs, Tensor) or outputs.shape != targets.shape:
            raise ModelError(
                f"the model must give a score for each question, [examples, {targets.shape[1]}], "
                f"got {described(outputs)}"
            )


def _check_answers(name: str, found: Batch | None, targets: Batch, wanted: str) -> None:
    if not isinstance(found, Tensor):
        raise DataError(f"local.objective {name} needs {wanted}, got targets {form_of(targets)}")
    odd = ((found != 0) & (found != 1)).nonzero()
    if len(odd):
        value = found[tuple(odd[0])].item()
        raise DataError(f"local.objective {name} needs {wanted}, got {value:g} at example {int(odd[0][0])}")
