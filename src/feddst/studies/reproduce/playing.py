"""Playing rows: one after another, or several at once in processes of their own, seeds of a row in several of them."""

import signal
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING

from torch import nn

from feddst.data import DataConfig, Dataset, Federation, federate, prepared
from feddst.errors import TrainingError
from feddst.runtime.config import RunConfig
from feddst.runtime.lock import Lock
from feddst.runtime.loop import play
from feddst.runtime.run import Run
from feddst.runtime.session import engine_of, open_run
from feddst.studies.reproduce.plan import PlannedRow
from feddst.studies.reproduce.progress import Listener, News, RowWatcher

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

PATIENCE = 0.1
"""Seconds between two checks for news of the processes."""


def play_rows(rows: Sequence[PlannedRow], dataset: Dataset, listener: Listener, at_once: int) -> TrainingError | None:
    """Play rows as far as the listener lets them; one that cannot go on does not stop the others.

    Returns a failure, if there was one.
    """
    parts = divided(rows, at_once)
    if at_once == 1 or len(parts) == 1:
        player = Player(dataset, listener)
        failures = [player.play(row) for row in rows]
    else:
        failures = _in_processes(parts, dataset, listener, min(at_once, len(parts)))
    return next((failure for failure in failures if failure is not None), None)


def divided(rows: Sequence[PlannedRow], at_once: int) -> list[PlannedRow]:
    """The work of the processes: rows, or parts of them if there are more processes than rows.

    The longest rows come first, so that none begins when others end, and get the most processes.
    """
    longest_first = sorted(rows, key=lambda row: row.bits_a_weight)
    each, more = divmod(max(at_once, len(rows)), len(rows))
    return [part for i, row in enumerate(longest_first) for part in row.parts(each + (i < more))]


class Player:
    """Plays one row after another; a seed's federation is made once for rows with the same data options."""

    def __init__(self, dataset: Dataset, listener: Listener) -> None:
        self._given = self._dataset = dataset
        self._config: DataConfig | None = None
        self._listener = listener
        self._federations: dict[int, Federation] = {}

    def play(self, row: PlannedRow) -> TrainingError | None:
        """Play all seeds of a row side by side; returns the failure that ended it, if any."""
        if self._listener.stop():
            return None
        try:
            self._prepare(row.unfinished[0].config.data)
            with ExitStack() as held:
                for run in row.unfinished:
                    held.enter_context(Lock(run.directory.path))
                runs, module = self._open(row)
                engine = held.enter_context(closing(engine_of(runs[0].config, module, self._dataset)))
                play(runs, engine, RowWatcher(row, self._listener))
        except TrainingError as error:
            return TrainingError(f"{row.row.title}: {error}")
        return None

    def _prepare(self, config: DataConfig) -> None:
        """Prepare the data of a row, unless they are those of the row before."""
        if config != self._config:
            self._config, self._dataset, self._federations = config, prepared(self._given, config), {}

    def _open(self, row: PlannedRow) -> tuple[list[Run], nn.Module]:
        """A row's runs, ready to go on, and their network."""
        opened = [
            open_run(run.config, self._federation(run.config), None, run.directory, run.standing == "resumed")
            for run in row.unfinished
        ]
        return [run for run, _ in opened], opened[0][1]

    def _federation(self, config: RunConfig) -> Federation:
        if config.seed not in self._federations:
            self._federations[config.seed] = federate(config.data, config.seed, self._dataset)
        return self._federations[config.seed]


class _Teller:
    """The listener in a process that plays rows: passes news on, and checks a stop flag."""

    def __init__(self, news: "SimpleQueue[News]", stopped: Event) -> None:
        self._news = news
        self._stopped = stopped

    def add(self, news: News) -> None:
        self._news.put(news)

    def stop(self) -> bool:
        return self._stopped.is_set()


_PLAYERS: list[Player] = []
"""In a process that plays rows: its player."""


def _settle(dataset: Dataset, news: "SimpleQueue[News]", stopped: Event) -> None:
    """Prepare a new process to play rows; only its parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _PLAYERS.append(Player(dataset, _Teller(news, stopped)))


def _play(row: PlannedRow) -> TrainingError | None:
    return _PLAYERS[0].play(row)


def _in_processes(
    parts: Sequence[PlannedRow], dataset: Dataset, listener: Listener, at_once: int
) -> list[TrainingError | None]:
    context = get_context("spawn")
    news: SimpleQueue[News] = context.SimpleQueue()
    stopped = context.Event()
    with ProcessPoolExecutor(at_once, context, _settle, (dataset, news, stopped)) as pool:
        futures = [pool.submit(_play, part) for part in parts]
        try:
            _listen(futures, news, stopped, listener)
        finally:
            stopped.set()
        return [_outcome(row, future) for row, future in zip(parts, futures, strict=True)]


def _outcome(row: PlannedRow, future: "Future[TrainingError | None]") -> TrainingError | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return TrainingError(
            f"{row.row.title}: a process was ended from outside, perhaps for want of memory (at_once is how many there "
            "are); what was checkpointed is there to go on with"
        )


def _listen(
    futures: Sequence["Future[TrainingError | None]"],
    news: "SimpleQueue[News]",
    stopped: Event,
    listener: Listener,
) -> None:
    """Pass on the news of processes until they are done, or one of them breaks."""
    waiting = set(futures)
    while waiting:
        finished, waiting = wait(waiting, PATIENCE, FIRST_COMPLETED)
        while not news.empty():  # all news of a process is here before it is done
            listener.add(news.get())
        if listener.stop() or any(future.exception() is not None for future in finished):
            stopped.set()
