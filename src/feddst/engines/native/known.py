"""Which training the kernels can do: the compiled ones on a CPU, and those on a GPU, side by side."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from feddst.clients.optimizers import SGD, Adam
from feddst.clients.steps import Proximal
from feddst.core import OBJECTIVES, OPTIMIZERS, ClientPlan, LocalOptimizer, LocalTraining
from feddst.core.plan import USUAL
from feddst.errors import UnsupportedModelError

log = logging.getLogger(__name__)

LOSSES: Mapping[str, str] = {
    "cross-entropy": "cross-entropy",
    "mse": "squared-error",
    "squared-error": "squared-error",
    "binary": "binary",
    "multi-label": "binary",
}
"""For each objective that the compiled kernels know, their name of its loss."""

UNDERSTOOD = frozenset({"epochs", "batch", "lr", "momentum", "l2", "order", "schedule", "weigh_by"})
"""Options of `local` that may have any value, beside the objective and the optimizer."""


@dataclass(frozen=True)
class Known:
    """What some kernels know of local training: objectives by name, and kinds of optimizer.

    An optimizer of one of these kinds may have been registered under another name, with other constants. An option
    that is not `UNDERSTOOD` must have its default.
    """

    objectives: tuple[str, ...]
    optimizers: tuple[type[LocalOptimizer], ...]

    def unknown(self, local: LocalTraining) -> str:
        """The first option with a value that the kernels do not know; empty if they know all of them."""
        if local.objective not in self.objectives:
            return "objective"
        if type(OPTIMIZERS[local.optimizer]) not in self.optimizers:
            return "optimizer"
        others = (field.name for field in fields(local) if field.name not in UNDERSTOOD | {"objective", "optimizer"})
        return next((name for name in others if getattr(local, name) != getattr(USUAL, name)), "")

    def values(self, option: str) -> str:
        """The values of an option that the kernels know, in words."""
        found = {
            "objective": [name for name in self.objectives if name in OBJECTIVES],
            "optimizer": [kind.name for kind in self.optimizers],
        }.get(option) or [str(getattr(USUAL, option))]
        return f"{', '.join(found[:-1])} and {found[-1]}" if len(found) > 1 else f"{found[0]} alone"


COMPILED = Known(tuple(LOSSES), (SGD, Adam))
"""The kernels on a CPU."""

SIDE_BY_SIDE = Known(("cross-entropy",), (SGD,))
"""Those on a GPU."""


def refuse_unknown(local: LocalTraining, known: Known = COMPILED) -> None:
    """Raise `UnsupportedModelError` if kernels cannot train this way."""
    if option := known.unknown(local):
        raise UnsupportedModelError(
            f"local.{option} is {getattr(local, option)}, and the kernels know {known.values(option)}"
        )


def why_unknown(plan: ClientPlan, known: Known = COMPILED) -> str:
    """Why kernels cannot carry out a plan; empty if they can.

    A step may act between epochs or at either end of a round, but may not change the gradient.
    """
    if option := known.unknown(plan.local):
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
