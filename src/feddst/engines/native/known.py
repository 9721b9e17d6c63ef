"""Which training the kernels can do, on a CPU and side by side on a GPU."""

import logging
from collections.abc import Iterable

from feddst.clients.steps import Proximal
from feddst.core import ClientPlan, LocalTraining
from feddst.errors import UnsupportedModelError

log = logging.getLogger(__name__)

KNOWN = {"objective": "cross-entropy", "optimizer": "sgd"}


def refuse_unknown(local: LocalTraining) -> None:
    """Raise `UnsupportedModelError` if kernels cannot train this way."""
    for name, known in KNOWN.items():
        if (found := getattr(local, name)) != known:
            raise UnsupportedModelError(f"local.{name} is {found}, and the kernels know {known} alone")


def why_unknown(plan: ClientPlan) -> str:
    """Why the compiled kernels cannot carry out a plan; empty if they can.

    A step may act between epochs or at either end of a round, but may not change the gradient.
    """
    for name, known in KNOWN.items():
        if (found := getattr(plan.local, name)) != known:
            return f"local.{name} is {found}"
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
