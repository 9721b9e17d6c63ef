"""The round loop: the only one there is. It advances a list of runs in lockstep; one run is a list of one."""

import logging
from collections.abc import Sequence
from typing import Protocol

import torch

from feddst.clients.reproducible import reproducible
from feddst.core import Aggregator
from feddst.engines import Engine, EvalTask, Sink
from feddst.errors import TrainingError
from feddst.runtime.metrics import Row
from feddst.runtime.rounds import Round
from feddst.runtime.run import Run
from feddst.runtime.warnings import forewarnings
from feddst.wire import ClientResult, ClientTask

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """A callback that hears of each finished round, and may stop the runs."""

    def started(self, runs: Sequence[Run]) -> None:
        """The loop is about to begin."""
        ...

    def row(self, run: Run, row: Row) -> None:
        """A run has finished a round."""
        ...

    def stop(self) -> bool:
        """Whether to stop after this round; asked once a round."""
        ...


class Silent:
    """A watcher that shows nothing and never stops a run."""

    def started(self, runs: Sequence[Run]) -> None:
        pass

    def row(self, run: Run, row: Row) -> None:
        pass

    def stop(self) -> bool:
        return False


class SharedRound(Sink):
    """One round of several runs, side by side: it is opened here, carried out by an engine, and then closed.

    The engine is given `tasks`, and hands their results to this sink. `failures` are the runs that cannot go on; the
    others continue.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.tasks: list[ClientTask] = []
        self.failures: dict[Run, TrainingError] = {}
        self._runs = runs
        self._places: list[tuple[Run, Round, int]] = []
        for run in runs:
            try:
                tasks = run.open_round()
            except TrainingError as error:
                self.failures[run] = error
                continue
            self.tasks += tasks
            self._places += [(run, run.round, place) for place in range(len(tasks))]

    def result(self, index: int, result: ClientResult) -> bool:
        _, round, place = self._places[index]
        return round.take(place, result)

    def empty_sum(self, index: int) -> Aggregator:
        _, round, place = self._places[index]
        return round.empty_sum(place)

    def partial(self, index: int, total: Aggregator) -> None:
        self._places[index][1].merge(total)

    def failed(self, index: int, error: TrainingError) -> None:
        self.failures[self._places[index][0]] = error

    def close(self, engine: Engine, watcher: Watcher) -> None:
        """Aggregate, evaluate the models that are due, and write the round's rows."""
        tests: dict[Run, list[EvalTask]] = {}
        for run in self._runs:
            if run not in self.failures:
                try:
                    tests[run] = run.eval_tasks() if run.close_round() else []
                except TrainingError as error:
                    self.failures[run] = error
        results = iter(engine.evaluate([task for some in tests.values() for task in some]))
        for run, some in tests.items():
            watcher.row(run, run.record([next(results) for _ in some]))


def play(runs: Sequence[Run], engine: Engine, watcher: Watcher) -> bool:
    """Take every run to its end. Returns False if the watcher stopped it; checkpoints are written then too."""
    live = [run for run in runs if not run.stopped_by]
    for line in dict.fromkeys(line for run in live if not run.rows for line in forewarnings(run.state)):
        log.warning("%s", line)
    watcher.started(live)
    with engine.at_work():
        try:
            for run in live:
                run.place(engine.device)
            return _play(live, engine, watcher)
        finally:
            for run in live:
                run.place(torch.device("cpu"))


def _play_round(runs: Sequence[Run], engine: Engine, watcher: Watcher) -> dict[Run, TrainingError]:
    """One round of each run; returns those that cannot go on. Nothing of the round stays in memory."""
    step = SharedRound(runs)
    engine.run(step.tasks, step)
    step.close(engine, watcher)
    return step.failures


def _play(live: Sequence[Run], engine: Engine, watcher: Watcher) -> bool:
    several, failures = len(live) > 1, dict[Run, TrainingError]()
    stopped = False
    while live and not stopped:
        with reproducible(tf32=engine.tf32):
            failures |= _play_round(live, engine, watcher)
        live = [run for run in live if not run.stopped_by and run not in failures]
        stopped = bool(live) and watcher.stop()
    for run in live:
        run.save()
    for run, failure in failures.items():
        raise TrainingError(f"{run.name}: {failure}") if several else failure
    return not stopped
