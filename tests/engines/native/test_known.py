"""Which training the compiled kernels take, and what is said of the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from torch import Tensor

from feddst.clients.optimizers import Adam
from feddst.clients.steps import Proximal, Report
from feddst.core import ClientPlan, ClientStep, LocalTraining, register
from feddst.engines.native import known
from feddst.engines.native.known import refuse_unknown, unknown_option, why_unknown
from feddst.errors import UnsupportedModelError


class Slower(Adam):
    """A step of its own."""

    def step(
        self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: LocalTraining, taken: int
    ) -> None:
        super().step(theta, gradient / 2, slots, local, taken)


@dataclass(frozen=True)
class Halving(ClientStep):
    """Changes the gradient."""

    name: ClassVar[str] = "halving"

    def at_gradient(self, gradient: Tensor, theta: Tensor, received: Tensor) -> None:
        gradient.div_(2)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("objective", ["cross-entropy", "squared-error", "binary", "multi-label"])
def test_the_kernels_know_these(objective: str, optimizer: str) -> None:
    """With any rates, sizes, orders and schedules over rounds."""
    rates: dict[str, Any] = {"lr": 0.2, "momentum": 0.0, "l2": 0.7, "schedule": "step", "lr_every": 7, "warmup": 3}
    sizes: dict[str, Any] = {"epochs": 3, "batch": 5, "order": "fixed", "weigh_by": "equal"}
    local = LocalTraining(**rates, **sizes, objective=objective, optimizer=optimizer)
    assert not unknown_option(local)
    refuse_unknown(local)
    assert not why_unknown(ClientPlan(local, (Proximal(0.5), Report("gradient"))))


def test_an_optimizer_is_known_by_its_kind() -> None:
    """Adam with other constants is Adam; what steps in another way is not."""
    register(Adam(beta2=0.99, name="adam99"))
    register(Slower(name="slower"))
    assert not unknown_option(LocalTraining(optimizer="adam99"))
    assert unknown_option(LocalTraining(optimizer="slower")) == "optimizer"
    with pytest.raises(UnsupportedModelError, match="is slower, and the kernels know sgd, adam and adamw"):
        refuse_unknown(LocalTraining(optimizer="slower"))
    assert why_unknown(ClientPlan(LocalTraining(optimizer="slower"))) == "local.optimizer is slower"


def test_another_objective_is_refused_by_name() -> None:
    local = LocalTraining(objective="huber")
    with pytest.raises(
        UnsupportedModelError, match=r"local\.objective is huber, and the kernels know cross-entropy.* and"
    ):
        refuse_unknown(local)
    assert why_unknown(ClientPlan(local)) == "local.objective is huber"


def test_an_option_that_the_kernels_have_never_heard_of_must_have_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "UNDERSTOOD", known.UNDERSTOOD - {"momentum"})
    usual = LocalTraining()
    assert not unknown_option(usual)
    changed = replace(usual, momentum=0.5)
    with pytest.raises(UnsupportedModelError, match=r"local\.momentum is 0\.5, which the kernels do not know"):
        refuse_unknown(changed)
    assert why_unknown(ClientPlan(changed)) == "local.momentum is 0.5"


def test_a_step_that_changes_gradients_is_unknown() -> None:
    assert why_unknown(ClientPlan(LocalTraining(), (Halving(),))) == "the step halving changes the gradient"
