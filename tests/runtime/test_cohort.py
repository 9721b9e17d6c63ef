"""Who takes part: sampling with and without replacement, and stragglers."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from feddst.clients.steps import LotteryPruning, Proximal
from feddst.core import SCHEDULES, ClientPlan, ServerState
from feddst.errors import TrainingError
from feddst.methods import FedAvgM, FedProx, Method
from feddst.runtime import CohortConfig
from feddst.runtime.cohort import participants


def cohort(method: Method, config: CohortConfig, round: int = 1, clients: int = 50) -> list[tuple[int, int | None]]:
    """Each participant with the epochs it manages, or None if it is left out."""
    found = participants(method, ServerState(round=round, seed=1, params={}), config, clients, 0)
    return [(client, None if plan is None else plan.local.epochs) for client, plan in found]


def test_without_replacement_nobody_comes_twice() -> None:
    config = CohortConfig(size=50)
    assert sorted(client for client, _ in cohort(FedAvgM(), config)) == list(range(50))


def test_with_replacement_somebody_may() -> None:
    config = CohortConfig(size=50, sampling="with-replacement")
    assert len({client for client, _ in cohort(FedAvgM(), config)}) < 50


def test_the_draw_follows_the_round_and_not_the_method() -> None:
    config = CohortConfig(size=5)
    assert cohort(FedAvgM(), config) == cohort(FedProx(), config) != cohort(FedAvgM(), config, round=2)


def test_stragglers_do_part_of_the_work_or_are_left_out() -> None:
    config = CohortConfig(size=20, stragglers=0.3)
    kept, left_out = cohort(FedProx(), config), cohort(FedAvgM(), config)
    slow = [epochs for _, epochs in kept if epochs != 10]
    assert len(slow) == 6
    assert all(epochs is not None and 1 <= epochs < 10 for epochs in slow)
    assert [epochs is None for _, epochs in left_out] == [epochs != 10 for _, epochs in kept]


@pytest.mark.parametrize("kept", [{"keep": frozenset({"0.weight"})}, {"steps": (LotteryPruning(0.5, 0.2, 0.2, {}),)}])
def test_a_method_whose_clients_keep_something_must_say_so(kept: dict[str, Any]) -> None:
    class Silent(FedAvgM):
        def plan(self, state: ServerState, client: int) -> ClientPlan:
            return replace(super().plan(state, client), **kept)

    class Open(Silent):
        keeps_state = True

    with pytest.raises(TrainingError, match="fedavgm are to keep something between rounds: it must say keeps_state"):
        cohort(Silent(), CohortConfig(size=5))
    assert len(cohort(Open(), CohortConfig(size=5))) == 5


def test_a_step_that_nobody_has_registered_is_refused() -> None:
    @dataclass(frozen=True)
    class Mine(Proximal):
        pass

    class Asking(FedAvgM):
        def plan(self, state: ServerState, client: int) -> ClientPlan:
            return super().plan(state, client).adding(Mine())

    with pytest.raises(
        TrainingError, match="fedavgm asks clients for Mine, a step that is not registered: write @feddst"
    ):
        cohort(Asking(), CohortConfig(size=5))


@pytest.mark.parametrize("factor", [0.0, -0.5, math.nan, math.inf])
def test_a_schedule_must_give_a_rate_to_train_with(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCHEDULES["constant"], "factor", lambda round, rounds: factor)
    with pytest.raises(
        TrainingError, match=f"local.schedule constant must give a factor above 0, got {factor} for round 3"
    ):
        cohort(FedAvgM(), CohortConfig(size=5), round=3)


def test_a_schedule_is_asked_for_rounds_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round 0 comes before the first, and rounds that did not count are played again after the last."""
    asked: list[tuple[int, int]] = []

    def factor(round: int, rounds: int) -> float:
        asked.append((round, rounds))
        return 1.0

    monkeypatch.setattr(SCHEDULES["constant"], "factor", factor)
    for round, rounds in ((0, 4), (1, 4), (4, 4), (6, 4), (0, 0), (6, 0)):
        participants(FedAvgM(), ServerState(round=round, seed=1, params={}), CohortConfig(size=1), 5, rounds)
    assert asked == [(1, 4), (1, 4), (4, 4), (4, 4), (1, 0), (6, 0)]
