"""Who takes part in a round, and how much of the work each of them manages."""

import math

import numpy as np

from feddst.core import OBJECTIVES, ClientPlan, LocalTraining, ServerState, generator
from feddst.core.step import STEPS
from feddst.errors import TrainingError
from feddst.methods import Method
from feddst.runtime.config import CohortConfig


def participants(
    method: Method, state: ServerState, config: CohortConfig, clients: int, rounds: int
) -> list[tuple[int, ClientPlan | None]]:
    """The clients of this round, sampled from 0 … `clients` − 1, with the plan of each.

    A straggler has none if its method does not use partial work.
    """
    draws = generator(state.seed, "cohort", state.round)
    replace = config.sampling == "with-replacement"
    sampled = draws.choice(clients, size=config.size, replace=replace).astype(np.int64)
    cohort = method.cohort(state, sampled)
    slow = _straggling_epochs(state, config, cohort, method.local.epochs)
    rate = _rate(method.local, state.round, rounds)
    plans = [_manageable(method, state, client, slow.get(i)) for i, client in enumerate(cohort)]
    goal = OBJECTIVES[method.local.objective].minimised
    return [(client, plan and plan.at_rate(rate).minimising(goal)) for client, plan in zip(cohort, plans, strict=True)]


def _rate(local: LocalTraining, round: int, rounds: int) -> float:
    """The factor on the learning rate in this round; raises `TrainingError` unless it is above 0 and finite."""
    rate = local.in_round(round, rounds)
    if not 0 < rate < math.inf:
        raise TrainingError(f"local.schedule {local.schedule} must give a factor above 0, got {rate} for round {round}")
    return rate


def _straggling_epochs(state: ServerState, config: CohortConfig, cohort: list[int], epochs: int) -> dict[int, int]:
    """For each straggler's place in the cohort, how many epochs it manages: 1 … E−1, all equally likely."""
    count = round(config.stragglers * len(cohort)) if epochs > 1 and state.round > 0 else 0
    draws = generator(state.seed, "stragglers", state.round)
    places = draws.choice(len(cohort), size=count, replace=False)
    return (
        {int(place): int(managed) for place, managed in zip(places, draws.integers(1, epochs, count), strict=True)}
        if count
        else {}
    )


def _manageable(method: Method, state: ServerState, client: int, managed: int | None) -> ClientPlan | None:
    plan = method.plan(state, client)
    if plan.keeps_state and not method.keeps_state:
        raise TrainingError(f"clients of {method.name} are to keep something between rounds: it must say keeps_state")
    for step in plan.steps:
        if STEPS.get(getattr(step, "name", "")) is not type(step):
            raise TrainingError(
                f"{method.name} asks clients for {type(step).__name__}, a step that is not registered: write "
                f"@feddst.register above the class, and give it a name of its own"
            )
    if managed is None:
        return plan
    return plan.shortened(managed) if method.accepts_partial else None
