"""Who takes part: sampling with and without replacement, and stragglers."""

from dataclasses import replace
from typing import Any

import pytest

from feddst.clients.steps import LotteryPruning
from feddst.core import ClientPlan, ServerState
from feddst.errors import TrainingError
from feddst.methods import FedAvgM, FedProx, Method
from feddst.runtime import CohortConfig
from feddst.runtime.cohort import participants


def cohort(method: Method, config: CohortConfig, round: int = 1, clients: int = 50) -> list[tuple[int, int | None]]:
    """Each participant with the epochs it manages, or None if it is left out."""
    found = participants(method, ServerState(round=round, seed=1, params={}), config, clients, 0)
    return [(one.client, None if one.plan is None else one.plan.local.epochs) for one in found]


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
