"""The learning rate from round to round, and from step to step."""

import math

import pytest
from torch import nn

import feddst
from feddst.clients.optimizers import Constant, Cosine, Exponential, Linear, Step
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


def test_those_that_end_above_zero_by_hand() -> None:
    """From 1 to 0.2: half-way is 0.6 by a line and by a cosine, whose first quarter is (1 + cos π/4)/2 = 0.8536."""
    assert [Linear(end=0.2).factor(round, 4) for round in (0, 1, 2, 3, 5, 9)] == pytest.approx(
        [1, 1, 0.8, 0.6, 0.2, 0.2]
    )
    found = [Cosine(end=0.2).factor(round, 4) for round in (1, 2, 3, 5)]
    assert found == pytest.approx([1, 0.2 + 0.8 * 0.853553, 0.6, 0.2])


def test_those_that_fall_by_a_factor_by_hand() -> None:
    """By 1/4 every 2 rounds: at once, or by a half each round."""
    assert [Step(0.25, 2).factor(round, 0) for round in (0, 1, 2, 3, 4, 5)] == [1, 1, 1, 0.25, 0.25, 0.0625]
    assert [Exponential(0.25, 2).factor(round, 0) for round in (0, 1, 2, 3)] == pytest.approx([1, 1, 0.5, 0.25])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"schedule": "cosine"}, [1, 0.8536, 0.5, 0.1464]),
        ({"schedule": "cosine", "lr_end": 1.0}, [1, 1, 1, 1]),
        ({"schedule": "linear", "lr_end": 0.5}, [1, 0.875, 0.75, 0.625]),
        ({"schedule": "step", "lr_every": 2, "lr_factor": 0.1}, [1, 1, 0.1, 0.1]),
        ({"schedule": "exponential", "lr_every": 1, "lr_factor": 0.5}, [1, 0.5, 0.25, 0.125]),
        ({"warmup": 3}, [0.25, 0.5, 0.75, 1]),
        ({"warmup": 1, "schedule": "linear"}, [0.5, 1, 2 / 3, 1 / 3]),
        ({"warmup": 2, "schedule": "cosine"}, [1 / 3, 2 / 3, 1, 0.5]),
    ],
)
def test_clients_are_told_the_rate_of_their_round(options: dict[str, object], expected: list[float]) -> None:
    """After a warm-up the schedule is as long as the rounds that are left."""
    method = FedAvgM(local=LocalTraining(lr=0.2, **options))  # type: ignore[arg-type]
    state = method.init(initial_model(nn.Linear(2, 2)), seed=0)
    plans = []
    for _ in range(4):
        plans += [plan for _, plan in participants(method, state, CohortConfig(size=1), 5, rounds=4)]
        state = state.next()
    assert [plan.local.lr / 0.2 for plan in plans if plan is not None] == pytest.approx(expected, abs=1e-4)


def test_without_an_end_the_warm_up_is_the_same() -> None:
    local = LocalTraining(warmup=1, schedule="step", lr_every=1)
    assert [local.in_round(round, 0) for round in (0, 1, 2, 3)] == [0.5, 0.5, 1, 0.5]


def test_a_constant_rate_leaves_the_plan_as_it_is() -> None:
    plan = ClientPlan(LocalTraining(lr=0.1))
    assert plan.at_rate(1.0) is plan
    assert plan.local.at_step(3, 7) is plan.local


def test_steps_of_a_round_by_hand() -> None:
    """Of 4 steps the first has all of the rate, the last a quarter, or (1 + cos 3π/4)/2."""
    line, wave = (LocalTraining(lr=0.2, schedule_within=kind) for kind in ("linear", "cosine"))
    assert [line.at_step(taken, 4).lr for taken in range(4)] == pytest.approx([0.2, 0.15, 0.1, 0.05])
    assert [wave.at_step(taken, 4).lr for taken in (0, 3)] == pytest.approx([0.2, 0.1 * (1 - math.sqrt(0.5))])


def test_a_schedule_over_all_rounds_needs_their_number() -> None:
    with pytest.raises(OptionError, match=r"local\.schedule cosine needs to know .*: set rounds"):
        feddst.configure(rounds=0, cap_gib=1.0, local={"schedule": "cosine"})
    with pytest.raises(
        OptionError, match=r"local\.schedule must be one of constant, .*, got 'cosin'; did you mean 'cosine'"
    ):
        feddst.configure(local={"schedule": "cosin"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"local": {"lr_end": 0.1}}, "local.lr_end has no effect on feddst with local.schedule constant"),
        (
            {"local": {"schedule": "step", "lr_end": 0.1}},
            "local.lr_end has no effect on feddst with local.schedule step",
        ),
        (
            {"local": {"schedule": "linear", "lr_every": 9}},
            "local.lr_every has no effect on feddst with local.schedule li",
        ),
        ({"rounds": 9, "local": {"warmup": 9}}, r"local.warmup must be below rounds \(9\), got 9"),
        ({"local": {"lr_factor": 0.0, "schedule": "step"}}, r"local.lr_factor must be in \(0, 1\], got 0"),
    ],
)
def test_what_has_no_effect_or_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        feddst.configure(**options)  # type: ignore[arg-type]
