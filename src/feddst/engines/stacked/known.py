"""Which training goes side by side, and which by the GPU's kernels."""

from feddst.clients.steps import LotteryPruning, Proximal, Readjust, Report
from feddst.core import OPTIMIZERS, ClientPlan, LocalOptimizer, LocalTraining
from feddst.core.plan import USUAL

SIDE_BY_SIDE = {Readjust, Proximal, LotteryPruning, Report}
"""The steps carried out for all models at once; with others one client is trained after another."""

IN_KERNELS = (
    "objective",
    "class_weights",
    "label_smoothing",
    "optimizer",
    "nesterov",
    "clip",
    "schedule_within",
)
"""Options of which the kernels know the default alone."""


def why_alone(plan: ClientPlan) -> str:
    """Why clients with this plan are trained one after another; empty if they go side by side."""
    others = [step.name for step in plan.steps if type(step) not in SIDE_BY_SIDE]
    return f"the step {others[0]} is asked for" if others else why_apart(plan.local)


def why_apart(local: LocalTraining) -> str:
    """Why no steps of this training are taken side by side; empty if they are."""
    optimizer = OPTIMIZERS[local.optimizer]
    elementwise = isinstance(optimizer, LocalOptimizer) and optimizer.elementwise
    return "" if elementwise else f"local.optimizer is {local.optimizer}"


def why_without_kernels(local: LocalTraining) -> str:
    """Why the kernels cannot train this way; empty if they can."""
    for name in IN_KERNELS:
        if (found := getattr(local, name)) != getattr(USUAL, name):
            return f"local.{name} is {found}"
    return ""
