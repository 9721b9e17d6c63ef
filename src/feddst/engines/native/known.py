"""What the kernels know of training, on a CPU and side by side on a GPU."""

import logging
from collections.abc import Iterable

from feddst.clients.steps import Proximal
from feddst.core import ClientPlan, LocalTraining
from feddst.errors import UnsupportedModelError

log = logging.getLogger(__name__)

KNOWN = {"objective": "cross-entropy", "optimizer": "sgd"}


def refuse_unknown(local: LocalTraining) -> None:
    """Raise `UnsupportedModelError` if kernels cannot train so."""
    for name, known in KNOWN.items():
        if (found := getattr(local, name)) != known:
            raise UnsupportedModelError(f"local.{name} is {found}, and the kernels know {known} alone")


def why_unknown(plan: ClientPlan) -> str:
    """Why the compiled kernels cannot carry out a plan; empty if they can.

    Whatever a step does between epochs or at the ends of a round goes with them, but not what changes the gradient.
    """
    for name, known in KNOWN.items():
        if (found := getattr(plan.local, name)) != known:
            return f"local.{name} is {found}"
    for step in plan.steps:
        if step.changes_gradients and type(step) is not Proximal:
            return f"the step {step.name} changes the gradient"
    return ""


class Detour:
    """Says why clients are trained in another way than an engine's own: each reason once, where `line` has its %s."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._said: set[str] = set()

    def say(self, reasons: Iterable[str]) -> None:
        """Say those that are new; an empty one is none."""
        for reason in dict.fromkeys(reasons):
            if reason and reason not in self._said:
                self._said.add(reason)
                log.warning(self._line, reason)
