"""Which training the compiled kernels can do."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields

from feddst.clients.optimizers import SGD, Adam, AdamW
from feddst.clients.steps import Proximal
from feddst.core import OBJECTIVES, OPTIMIZERS, ClientPlan, LocalTraining
from feddst.core.plan import USUAL
from feddst.errors import UnsupportedModelError

log = logging.getLogger(__name__)

LOSSES: Mapping[str, str] = {
    "cross-entropy": "cross-entropy",
    "squared-error": "squared-error",
    "binary": "binary",
    "multi-label": "binary",
}
"""The objectives that they know, each with their name of its loss."""

STEPPERS = (SGD, Adam, AdamW)
"""The kinds of optimizer that they know, whatever constants one was registered with."""

UNDERSTOOD = frozenset(
    {
        "epochs",
        "batch",
        "lr",
        "momentum",
        "l2",
        "order",
        "schedule",
        "warmup",
        "lr_end",
        "lr_factor",
        "lr_every",
        "weigh_by",
    }
)
"""Other options of `local` that may have any value; those that are named nowhere here must have their default."""


def unknown_option(local: LocalTraining) -> str:
    """The first option with a value that the kernels do not know; empty if they can train this way."""
    if OBJECTIVES[local.objective].minimised not in LOSSES:
        return "objective"
    if type(OPTIMIZERS[local.optimizer]) not in STEPPERS:
        return "optimizer"
    others = (field.name for field in fields(local) if field.name not in UNDERSTOOD | {"objective", "optimizer"})
    return next((name for name in others if getattr(local, name) != getattr(USUAL, name)), "")


def known_values(option: str) -> str:
    """The objectives or optimizers that the kernels know."""
    *rest, last = LOSSES if option == "objective" else [kind.name for kind in STEPPERS]
    return f"{', '.join(rest)} and {last}"


def refuse_unknown(local: LocalTraining) -> None:
    """Raise `UnsupportedModelError` if the kernels cannot train this way."""
    if option := unknown_option(local):
        reason = f"local.{option} is {getattr(local, option)}"
        if option in ("objective", "optimizer"):
            raise UnsupportedModelError(f"{reason}, and the kernels know {known_values(option)}")
        raise UnsupportedModelError(f"{reason}, which the kernels do not know")


def why_unknown(plan: ClientPlan) -> str:
    """Why the kernels cannot carry out a plan; empty if they can.

    A step may act between epochs or at either end of a round, but may not change the gradient.
    """
    if option := unknown_option(plan.local):
        return f"local.{option} is {getattr(plan.local, option)}"
    for step in plan.steps:
        if step.changes_gradients and type(step) is not Proximal:
            return f"the step {step.name} changes the gradient"
    return ""


class Detour:
    """Logs why clients are not trained in the engine's own way: each reason once, at the %s of `line`."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._said: set[str] = set()

    def say(self, reasons: Iterable[str]) -> None:
        """Log the reasons that are new and not empty."""
        for reason in dict.fromkeys(reasons):
            if reason and reason not in self._said:
                self._said.add(reason)
                log.warning(self._line, reason)
