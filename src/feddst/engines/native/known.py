"""What the kernels know of training, on a CPU and side by side on a GPU."""

from feddst.clients.steps import Proximal
from feddst.core import ClientPlan, ClientStep, LocalTraining
from feddst.errors import UnsupportedModelError

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
        if type(step).at_gradient is not ClientStep.at_gradient and type(step) is not Proximal:
            return f"the step {step.name} changes the gradient"
    return ""
