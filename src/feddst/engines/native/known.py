"""Which training the compiled kernels can do."""

import logging
from collections.abc import Iterable

from feddst.clients.steps import Proximal
from feddst.core import ClientPlan, LocalTraining
from feddst.core.plan import USUAL
from feddst.errors import UnsupportedModelError

log = logging.getLogger(__name__)

KNOWN = {"objective": "cross-entropy", "optimizer": "sgd"}

UNKNOWN = ("nesterov", "clip", "schedule_within")
"""Options of which the kernels know the default alone."""


def refuse_unknown(local: LocalTraining) -> None:
    """Raise `UnsupportedModelError` if kernels cannot train this way."""
    for name, known in KNOWN.items():
        if (found := getattr(local, name)) != known:
            raise UnsupportedModelError(f"local.{name} is {found}, and the kernels know {known} alone")
    if reason := _why_unlike(local):
        raise UnsupportedModelError(f"{reason}, which the kernels do not know")


def _why_unlike(local: LocalTraining) -> str:
    """The first option that the kernels do not know; empty if they know all."""
    changed = [name for name in UNKNOWN if getattr(local, name) != getattr(USUAL, name)]
    return f"local.{changed[0]} is {getattr(local, changed[0])}" if changed else ""


def why_unknown(plan: ClientPlan) -> str:
    """Why the compiled kernels cannot carry out a plan; empty if they can.

    A step may act between epochs or at either end of a round, but may not change the gradient.
    """
    for name, known in KNOWN.items():
        if (found := getattr(plan.local, name)) != known:
            return f"local.{name} is {found}"
    if reason := _why_unlike(plan.local):
        return reason
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
