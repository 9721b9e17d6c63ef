"""The learning rate from round to round."""

import pytest

import feddst
from feddst.clients.optimizers import Constant, Cosine
from feddst.core import ClientPlan, LocalTraining
from feddst.errors import OptionError
from feddst.methods import FedAvgM
from feddst.models import initial_model
from feddst.runtime.cohort import participants
from feddst.runtime.config import CohortConfig


def test_cosine_by_hand() -> None:
    """cos 0 = 1, cos π/2 = 0, cos π = −1; round 0, in which some methods ask for something first, is like round 1."""
    found = [Cosine().factor(round, 4) for round in (0, 1, 3, 5, 9)]
    assert found == pytest.approx([1, 1, 0.5, 0, 0])
    assert Constant().factor(7, 0) == 1


def test_clients_are_told_the_rate_of_their_round() -> None:
    from torch import nn

    method = FedAvgM(local=LocalTraining(lr=0.2, schedule="cosine"))
    state = method.init(initial_model(nn.Linear(2, 2)), seed=0)
    plans = []
    for _ in range(4):
        plans += [plan for _, plan in participants(method, state, CohortConfig(size=1), 5, rounds=4)]
        state = state.next()
    assert [plan.local.lr for plan in plans if plan is not None] == pytest.approx([0.2, 0.1707, 0.1, 0.0293], abs=1e-4)


def test_a_constant_rate_leaves_the_plan_as_it_is() -> None:
    plan = ClientPlan(LocalTraining(lr=0.1))
    assert plan.at_rate(1.0) is plan


def test_a_schedule_over_all_rounds_needs_their_number() -> None:
    with pytest.raises(OptionError, match=r"local\.schedule cosine needs to know .*: set rounds"):
        feddst.configure(rounds=0, cap_gib=1.0, local={"schedule": "cosine"})
    with pytest.raises(OptionError, match=r"local\.schedule must be one of constant, cosine, got 'cosin'"):
        feddst.configure(local={"schedule": "cosin"})
