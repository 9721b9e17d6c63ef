"""The round loop: the only one there is. It advances a list of runs in lockstep; one run is a list of one."""

from collections.abc import Sequence
from typing import Protocol

import torch

from feddst.engines import AnyEngine, CohortEngine, Engine, Reply
from feddst.engines.conditions import reproducible
from feddst.experiment.metrics import Row
from feddst.experiment.run import Run


class Watcher(Protocol):
    """Somebody who looks on."""

    def started(self, runs: Sequence[Run]) -> None:
        """The loop is about to begin."""
        ...

    def row(self, run: Run, row: Row) -> None:
        """A run has finished a round."""
        ...

    def stop(self) -> bool:
        """Whether to leave off after this round; asked once a round."""
        ...


class Silent:
    """A watcher that shows nothing and never stops a run."""

    def started(self, runs: Sequence[Run]) -> None:
        pass

    def row(self, run: Run, row: Row) -> None:
        pass

    def stop(self) -> bool:
        return False


def play(runs: Sequence[Run], engine: AnyEngine, watcher: Watcher) -> bool:
    """Take every run to its end. Returns False if the watcher stopped it; checkpoints are written then too."""
    live = [run for run in runs if not run.stopped_by]
    watcher.started(live)
    if not isinstance(engine, CohortEngine):
        return _play(live, engine, watcher)
    with engine.at_work():
        try:
            for run in live:
                run.place(engine.device)
            return _play(live, engine, watcher)
        finally:
            for run in live:
                run.place(torch.device("cpu"))


def _play(live: Sequence[Run], engine: AnyEngine, watcher: Watcher) -> bool:
    while live:
        with reproducible(tf32=isinstance(engine, CohortEngine) and engine.tf32):
            _round(live, engine, watcher)
        live = [run for run in live if not run.stopped_by]
        if live and watcher.stop():
            for run in live:
                run.save()
            return False
    return True


def _round(runs: Sequence[Run], engine: AnyEngine, watcher: Watcher) -> None:
    if isinstance(engine, CohortEngine):
        _train_cohorts(runs, engine)
    else:
        _train_clients(runs, engine)
    exams = {id(run): run.exams() if run.close_round() else [] for run in runs}
    results = iter(engine.evaluate([exam for run in runs for exam in exams[id(run)]]))
    for run in runs:
        watcher.row(run, run.record([next(results) for _ in exams[id(run)]]))


def _train_clients(runs: Sequence[Run], engine: Engine) -> None:
    given = [(run, place, assignment) for run in runs for place, assignment in enumerate(run.open_round())]

    def receive(index: int, reply: Reply) -> None:
        run, place, _ = given[index]
        run.receive(place, reply)

    engine.train([assignment for _, _, assignment in given], receive)


def _train_cohorts(runs: Sequence[Run], engine: CohortEngine) -> None:
    cohorts = [run.open_cohort() for run in runs]
    for run, tally in zip(runs, engine.train_cohorts(cohorts), strict=True):
        run.receive_all(tally)
