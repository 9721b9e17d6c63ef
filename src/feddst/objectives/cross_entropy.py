"""A class for each example, for each pixel, or for each position in a text."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from feddst.core import LocalTraining
from feddst.core.batches import Batch, form_of, mapped
from feddst.core.examples import highest
from feddst.core.metric import Mean, Metric
from feddst.core.objective import Objective, Reduction
from feddst.core.registry import register
from feddst.errors import DataError, ModelError, OptionError
from feddst.objectives import metrics


@register
@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Classification: the negative logarithm of the right class's probability.

    outputs: a score for each class, [examples, classes]; targets: int64 [examples]. An example counts with the weight
    of its class in `class_weights`, one for each class. The share `label_smoothing` of a target is spread over all
    classes.
    """

    name: ClassVar[str] = "cross-entropy"
    heeds: ClassVar[tuple[str, ...]] = ("class_weights", "label_smoothing")

    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0

    def loss(self, outputs: Any, targets: Any, reduction: Reduction = "mean") -> Tensor:
        weight = torch.tensor(self.class_weights, device=outputs.device) if self.class_weights else None
        smoothing = self.label_smoothing
        return F.cross_entropy(outputs, targets, weight=weight, reduction=reduction, label_smoothing=smoothing)

    def terms(self, targets: Any) -> float:
        if not self.class_weights:
            return len(targets)
        return float(torch.tensor(self.class_weights, device=targets.device)[targets].sum())

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (metrics.ACCURACY,)

    def check_targets(self, targets: Batch, classes: int) -> None:
        if not isinstance(targets, Tensor) or targets.dim() != 1 or targets.is_floating_point():
            raise DataError(
                f"local.objective {self.name} needs one class for each example, int64 [examples], got targets "
                f"{form_of(targets)}; for numbers choose squared-error, for a class at each place segmentation or "
                "tokens, for several answers multi-label"
            )
        if not classes and len(targets) and int(targets.min()) < 0:
            raise DataError(
                f"local.objective {self.name} needs classes numbered from 0, got {int(targets.min())} at example "
                f"{int(targets.argmin())}"
            )
        if self.class_weights and len(self.class_weights) != classes:
            raise OptionError(
                f"local.class_weights must have {classes} numbers, one for each class, got {len(self.class_weights)}"
            )

    def check_outputs(self, outputs: Any, targets: Batch, classes: int) -> None:
        if not isinstance(outputs, Tensor) or outputs.dim() != 2:
            raise ModelError(f"the model must give scores of shape [examples, classes], got {described(outputs)}")
        if outputs.shape[1] < classes:
            raise ModelError(f"the model gives {outputs.shape[1]} outputs, but the labels are 0 to {classes - 1}")

    def with_options(self, local: LocalTraining) -> Objective:
        if not local.class_weights and not local.label_smoothing:
            return self
        return replace(self, class_weights=local.class_weights, label_smoothing=local.label_smoothing)


@dataclass(frozen=True)
class _Places(Objective):
    """A class at each of an example's places; places with the class `ignore_target` do not count.

    outputs: [examples, classes, *places]; targets: int64 [examples, *places].
    """

    heeds: ClassVar[tuple[str, ...]] = ("class_weights", "label_smoothing", "ignore_target")

    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0
    ignore_target: int = -100

    def loss(self, outputs: Any, targets: Any, reduction: Reduction = "mean") -> Tensor:
        weight = torch.tensor(self.class_weights, device=outputs.device) if self.class_weights else None
        return F.cross_entropy(
            outputs,
            targets,
            weight=weight,
            ignore_index=self.ignore_target,
            reduction=reduction,
            label_smoothing=self.label_smoothing,
        )

    def terms(self, targets: Any) -> float:
        real = targets[targets != self.ignore_target]
        if not self.class_weights:
            return len(real)
        return float(torch.tensor(self.class_weights, device=targets.device)[real].sum())

    def classes_in(self, targets: Batch) -> int:
        return highest([mapped(lambda value: value[value != self.ignore_target], targets)]) + 1

    def outputs_for(self, targets: Batch, classes: int) -> int:
        return classes or self.classes_in(targets)

    def check_targets(self, targets: Batch, classes: int) -> None:
        if not isinstance(targets, Tensor) or targets.dim() < 2 or targets.dtype != torch.int64:
            raise DataError(
                f"local.objective {self.name} needs a class at each place, int64 [examples, places …], got targets "
                f"{form_of(targets)}"
            )
        empty = (targets.reshape(len(targets), -1) == self.ignore_target).all(dim=1).nonzero()
        if len(empty):
            raise DataError(
                f"local.objective {self.name}: every place of example {int(empty[0])} has the target "
                f"local.ignore_target {self.ignore_target}, so that there is nothing to learn from it"
            )
        real = targets[targets != self.ignore_target]
        if int(real.min()) < 0:
            raise DataError(
                f"local.objective {self.name}: targets must be 0 or more, or local.ignore_target "
                f"({self.ignore_target}), got {int(real.min())}"
            )
        if self.class_weights and int(real.max()) >= len(self.class_weights):
            raise OptionError(
                f"local.class_weights has {len(self.class_weights)} numbers, but there are targets up to "
                f"{int(real.max())}"
            )

    def check_outputs(self, outputs: Any, targets: Batch, classes: int) -> None:
        assert isinstance(targets, Tensor)
        if (
            not isinstance(outputs, Tensor)
            or outputs.dim() != targets.dim() + 1
            or outputs.shape[2:] != targets.shape[1:]
        ):
            wanted = ", ".join(map(str, targets.shape[1:]))
            hint = ""
            if isinstance(outputs, Tensor) and outputs.shape[1:-1] == targets.shape[1:]:
                hint = "; move its last dimension to the second place: outputs.movedim(-1, 1)"
            raise ModelError(
                f"the model must give scores of shape [examples, classes, {wanted}], got {described(outputs)}{hint}"
            )
        if outputs.shape[1] < classes:
            raise ModelError(
                f"the model gives {outputs.shape[1]} scores a place, but the targets are 0 to {classes - 1}"
            )

    def with_options(self, local: LocalTraining) -> "Objective":
        return replace(
            self,
            class_weights=local.class_weights,
            label_smoothing=local.label_smoothing,
            ignore_target=local.ignore_target,
        )


@register
@dataclass(frozen=True)
class Segmentation(_Places):
    """A class for each pixel; outputs: [examples, classes, height, width], targets: int64 [examples, height, width]."""

    name: ClassVar[str] = "segmentation"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        ignored = self.ignore_target
        return (
            Mean("iou", percent=True, parts=partial(metrics.overlaps, ignored=ignored), value=metrics.mean_overlap),
            Mean("accuracy", percent=True, parts=partial(metrics.right_places, ignored=ignored)),
        )


@register
@dataclass(frozen=True)
class Tokens(_Places):
    """The next token at each position.

    outputs: [examples, vocabulary, positions]; targets: int64 [examples, positions]. The target of padding is
    `ignore_target`.
    """

    name: ClassVar[str] = "tokens"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        ignored = self.ignore_target
        surprises = partial(metrics.surprises, ignored=ignored)
        return (
            Mean("accuracy", percent=True, parts=partial(metrics.right_places, ignored=ignored)),
            Mean("perplexity", higher_is_better=False, parts=surprises, value=metrics.exponential),
        )


def described(outputs: Any) -> str:
    """What a network gave, in words."""
    return f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
