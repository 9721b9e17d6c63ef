"""Any function of outputs and targets as an objective: the `loss=` and `metrics=` of `feddst.run`."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from feddst.core import LocalTraining
from feddst.core.batches import length, mapped, tensors_of
from feddst.core.metric import Mean, Metric, Whole
from feddst.core.objective import OBJECTIVES, Objective, Reduction
from feddst.core.registry import same_class
from feddst.errors import OptionError

_LOWER = ("loss", "error", "mse", "mae", "perplexity")
"""What the names of metrics have in them of which less is better."""

Function = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class FunctionObjective(Objective):
    """A function of outputs and targets, which gives a mean loss, or the loss of each example.

    A model is judged by that loss.
    """

    function: Function
    name: str = "loss"  # type: ignore[misc]

    def loss(self, outputs: Any, targets: Any, reduction: Reduction = "mean") -> Tensor:
        found: Tensor = self.function(outputs, targets)
        if found.dim():
            return found.mean() if reduction == "mean" else found.sum()
        return found if reduction == "mean" else found * length(targets)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (Whole("test_loss", higher_is_better=False, function=self.loss),)

    def check_outputs(self, outputs: Any, targets: Any, classes: int) -> None:
        known = _with_gradient(outputs)
        with torch.enable_grad():
            found = tried("loss", self.function, outputs if known is None else known, targets)
        if (
            not isinstance(found, Tensor)
            or not found.is_floating_point()
            or found.shape not in ((), (length(targets),))
        ):
            raise OptionError(
                f"loss must give one number, or one for each example [examples], as a tensor, got {_described(found)}"
            )
        if known is not None and not found.requires_grad:
            raise OptionError(
                "loss must have a gradient: what it gives does not follow from the outputs, or only through detach(), "
                "argmax, NumPy and the like"
            )


@dataclass(frozen=True)
class WithMetrics(Objective):
    """Another objective with metrics of a user's before its own.

    They are functions of outputs and targets until they are `resolved`.
    """

    inner: Objective
    given: Mapping[str, "Function | Metric"]
    name: str = ""  # type: ignore[misc]
    heeds: tuple[str, ...] = ()  # type: ignore[misc]

    @property
    def minimised(self) -> str:
        return self.inner.minimised

    def with_options(self, local: LocalTraining) -> Objective:
        return replace(self, inner=self.inner.with_options(local))

    def loss(self, outputs: Any, targets: Any, reduction: Reduction = "mean") -> Tensor:
        return self.inner.loss(outputs, targets, reduction)

    def terms(self, targets: Any) -> float:
        return self.inner.terms(targets)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        first = tuple(metric for metric in self.given.values() if isinstance(metric, Metric))
        return (*first, *(metric for metric in self.inner.metrics if metric.name not in self.given))

    def resolved(self, outputs: Any, targets: Any) -> "WithMetrics":
        """The same with its functions as metrics, found out on outputs and targets of two examples."""
        found = {name: as_metric(name, function, outputs, targets) for name, function in self.given.items()}
        return replace(self, given=found)

    def outputs_for(self, targets: Any, classes: int) -> int:
        return self.inner.outputs_for(targets, classes)

    def check_targets(self, targets: Any, classes: int) -> None:
        self.inner.check_targets(targets, classes)

    def check_outputs(self, outputs: Any, targets: Any, classes: int) -> None:
        self.inner.check_outputs(outputs, targets, classes)


@dataclass(frozen=True)
class MissingObjective(Objective):
    """Stands for a user's function that a stored run was trained with, and that is not here now."""

    name: str  # type: ignore[misc]
    stands_in: ClassVar[bool] = True

    def loss(self, outputs: Any, targets: Any, reduction: Reduction = "mean") -> Tensor:
        raise OptionError(self.remedy)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        raise OptionError(self.remedy)

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return f"local.objective {self.name} is a function of your own: give it again, as loss= or metrics="


def _with_gradient(outputs: Any) -> Any:
    """The same outputs, of which gradients can be taken; None if they are of a kind of their own."""
    if type(outputs) not in (Tensor, tuple, dict) or not all(isinstance(one, Tensor) for one in tensors_of(outputs)):
        return None
    # Copies, since a loss may write to outputs of a network, but not to a leaf.
    return mapped(lambda value: value.detach().requires_grad_(value.is_floating_point()).clone(), outputs)


def tried(what: str, function: Function, outputs: Any, targets: Any) -> Any:
    """What a user's function gives; an error of its own becomes one line that names it.

    So does PyTorch's warning that targets [n] meet outputs [n, 1], which gives [n, n] and trains nothing that is meant.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Using a target size")
            return function(outputs, targets)
    except UserWarning as error:
        raise OptionError(
            f"{what}: outputs {list(outputs.shape)} do not have the shape of targets {list(targets.shape)}, and would "
            "be spread against each other; give it outputs.squeeze(1), or whatever makes the two alike"
        ) from error
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise OptionError(f"{what} failed on two examples: {type(error).__name__}: {reason}") from error


def as_metric(name: str, function: "Function | Metric", outputs: Any, targets: Any) -> Metric:
    """A user's metric: a `Metric`, or a function that gives a number for each example, or one for all of them.

    Which of the two is found out on the outputs and targets of two examples. A function's attribute `higher_is_better`
    says which values are better: by default higher ones, unless the metric's name has `loss`, `error`, `mse`, `mae` or
    `perplexity` in it.
    """
    if isinstance(function, Metric):
        return function
    found = tried(f"metrics[{name!r}]", function, outputs, targets)
    better = getattr(function, "higher_is_better", not any(word in name.lower() for word in _LOWER))
    if isinstance(found, Tensor) and found.shape == (length(targets),):
        return Mean(name, higher_is_better=better, parts=function)
    if isinstance(found, Tensor) and found.numel() != 1:
        raise OptionError(
            f"metrics[{name!r}] must give one number, or one for each example [examples], got {_described(found)}"
        )
    try:
        float(found)
    except (TypeError, ValueError):
        raise OptionError(f"metrics[{name!r}] must give a number, got {_described(found)}") from None
    return Whole(name, higher_is_better=better, function=function)


def objective_from(
    base: Objective, loss: "Function | Objective | None", metrics: "Mapping[str, Any] | Sequence[Metric]"
) -> Objective:
    """The objective that `loss=` and `metrics=` say, with what they leave out from `base`."""
    inner: Objective = base.inner if isinstance(base, WithMetrics) else base
    if isinstance(loss, Objective):
        inner = loss
        _refuse_name(loss)
    elif loss is not None:
        if not callable(loss):
            raise OptionError(
                f"loss must be a function of outputs and targets, or an Objective, got {type(loss).__name__}"
            )
        inner = FunctionObjective(loss, name=getattr(loss, "__name__", "loss").strip("<>"))
        if not isinstance(OBJECTIVES.get(inner.name, inner), FunctionObjective | MissingObjective):
            raise OptionError(
                f"loss is a function called {inner.name}, as a built-in objective is: give it another name"
            )
    if not metrics:
        return inner
    named = _by_name(metrics)
    return WithMetrics(inner, named, f"{inner.name} with {', '.join(named)}", inner.heeds)


def _refuse_name(loss: Objective) -> None:
    """Raise `OptionError` if another objective has this one's name, or constants that options set."""
    known = OBJECTIVES.get(loss.name)
    if known is None or isinstance(known, FunctionObjective | MissingObjective):
        return
    if not same_class(known, loss):
        raise OptionError(
            f"loss is a {type(loss).__name__} named {loss.name}, as {type(known).__name__} is: "
            "give it a name of its own"
        )
    if loss.heeds and type(known) is type(loss) and known != loss:
        options = " and ".join(f"local.{option}" for option in loss.heeds)
        raise OptionError(f"loss is {loss.name} with constants of its own: set {options} instead")


def _by_name(metrics: "Mapping[str, Any] | Sequence[Metric]") -> "dict[str, Function | Metric]":
    """A user's metrics, each under its own name."""
    if isinstance(metrics, Mapping):
        named = {name: replace(one, name=name) if isinstance(one, Metric) else one for name, one in metrics.items()}
    elif isinstance(metrics, Sequence) and all(isinstance(one, Metric) for one in metrics):
        named = {one.name: one for one in metrics}
    else:
        raise OptionError(
            f"metrics must be a dict with a function for each name, or a list of Metric, got {type(metrics).__name__}"
        )
    for name, one in named.items():
        if not callable(one) and not isinstance(one, Mean | Whole):
            raise OptionError(f"metrics[{name!r}] must be a function, a Mean or a Whole, got {type(one).__name__}")
    return named


def _described(found: Any) -> str:
    return f"a tensor of shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
