"""The round loop: the only one there is. It advances a list of runs in lockstep; one run is a list of one."""

import logging
from collections.abc import Sequence
from typing import Protocol

import torch

from feddst.clients import Failure, Reply
from feddst.clients.reproducible import reproducible
from feddst.engines import AnyEngine, Cohort, CohortEngine, Engine, Exam
from feddst.errors import TrainingError
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.warnings import forewarnings

log = logging.getLogger(__name__)


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
    for line in dict.fromkeys(line for run in live if not run.rows for line in forewarnings(run.state)):
        log.warning("%s", line)
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
    several, failures = len(live) > 1, dict[Run, TrainingError]()
    stopped = False
    while live and not stopped:
        with reproducible(tf32=isinstance(engine, CohortEngine) and engine.tf32):
            failures |= _round(live, engine, watcher)
        live = [run for run in live if not run.stopped_by and run not in failures]
        stopped = bool(live) and watcher.stop()
    for run in live:
        run.save()
    for run, failure in failures.items():
        raise TrainingError(f"{run.name}: {failure}") if several else failure
    return not stopped


def _round(runs: Sequence[Run], engine: AnyEngine, watcher: Watcher) -> dict[Run, TrainingError]:
    """One round of each run; returns those that cannot go on, where the others can."""
    failures: dict[Run, TrainingError] = {}
    if isinstance(engine, CohortEngine):
        failures = _train_cohorts(runs, engine)
    else:
        _train_clients(runs, engine)
    exams: dict[Run, list[Exam]] = {}
    for run in runs:
        if run not in failures:
            try:
                exams[run] = run.exams() if run.close_round() else []
            except TrainingError as error:
                failures[run] = error
    results = iter(engine.evaluate([exam for some in exams.values() for exam in some]))
    for run, some in exams.items():
        watcher.row(run, run.record([next(results) for _ in some]))
    return failures


def _train_clients(runs: Sequence[Run], engine: Engine) -> None:
    given = [(run, place, assignment) for run in runs for place, assignment in enumerate(run.open_round())]

    def receive(index: int, reply: Reply | Failure) -> bool:
        run, place, _ = given[index]
        return run.receive(place, reply)

    engine.train([assignment for _, _, assignment in given], receive)


def _train_cohorts(runs: Sequence[Run], engine: CohortEngine) -> dict[Run, TrainingError]:
    cohorts: dict[Run, Cohort] = {}
    failures: dict[Run, TrainingError] = {}
    for run in runs:
        try:
            cohorts[run] = run.open_cohort()
        except TrainingError as error:
            failures[run] = error
    for run, tally in zip(cohorts, engine.train_cohorts(list(cohorts.values())), strict=True):
        if tally.failure is None:
            run.receive_all(tally)
        else:
            failures[run] = tally.failure
    return failures
