"""How far all runs of a reproduction are together, and how long they will still take."""

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Protocol

from feddst.core.metric import Metric
from feddst.runtime.metrics import ACCURACY, Row
from feddst.runtime.pace import Pace
from feddst.runtime.run import Run
from feddst.runtime.wording import NOTHING, counted, duration, percent
from feddst.studies.reproduce.plan import PlannedRow, PlannedRun

EVERY = 5.0
"""Seconds between two lines."""
LEAST = 0.005
"""The share of all work that must be done before the time left is estimated: beginnings are slow."""


@dataclass(frozen=True)
class Overview:
    """Where a reproduction stands: the share done, rows and rounds of all runs, and the latest news from one row.

    `score` is the mean over the row's seeds of their last evaluations; `left` the seconds left, None if unknown.
    """

    done: float
    rows_done: int
    rows: int
    rounds: int
    title: str
    round: int
    score: float | None
    left: float | None
    metric: Metric = ACCURACY

    def news(self) -> str:
        """The row, its score and the time left."""
        score = self.metric.text(self.score) if self.score is not None else NOTHING
        left = "" if self.left is None else f"; about {duration(self.left)} left"
        return f"{self.title}, round {self.round}: {self.metric.name} {score}{left}"

    def line(self) -> str:
        """All of it in a line."""
        rows = f"{self.rows_done} of {counted(self.rows, 'row')}"
        return f"{percent(self.done)} done, {rows}, {self.rounds:,} rounds; {self.news()}"


class Overseer(Protocol):
    """A callback that hears how far a reproduction is, and may stop it."""

    def show(self, overview: Overview) -> None:
        """A run has finished a round."""
        ...

    def stop(self) -> bool:
        """Whether to stop; asked once a round of each row."""
        ...


class ProgressLines:
    """One line every few seconds, on standard error."""

    def __init__(self) -> None:
        self._next = 0.0

    def show(self, overview: Overview) -> None:
        if time.monotonic() >= self._next or overview.done == 1:
            print(overview.line(), file=sys.stderr, flush=True)
            self._next = time.monotonic() + EVERY

    def stop(self) -> bool:
        return False


@dataclass(frozen=True)
class News:
    """A run has finished a round: which one, the share of it that is done, and its score if it was evaluated."""

    row: str
    seed: int
    share: float
    round: int
    score: float | None
    metric: Metric = ACCURACY


class Listener(Protocol):
    """Gets the news of rows, and says whether they stop."""

    def add(self, news: News) -> None:
        """A run has finished a round."""
        ...

    def stop(self) -> bool:
        """Whether to stop."""
        ...


class Overall:
    """Adds up the news of all rows, which may come from several threads, and passes it on."""

    def __init__(self, rows: Sequence[PlannedRow], overseer: Overseer, deadline: float) -> None:
        self._rows = [row for row in rows if row.wanted]
        self._titles = {row.row.name: row.row.title for row in self._rows}
        self._overseer = overseer
        self._deadline = deadline
        self._lock = threading.Lock()
        self._done: dict[tuple[str, int], float] = {}
        self._rounds: dict[tuple[str, int], int] = {}
        self._scores: dict[tuple[str, int], float] = {}
        for row in self._rows:
            for run in row.asked:
                self._enter((row.row.name, run.seed), run)
        self._gained = 0.0
        self._began = time.monotonic()

    def add(self, news: News) -> None:
        with self._lock:
            key = news.row, news.seed
            self._gained += max(0.0, news.share - self._done[key])
            self._done[key], self._rounds[key] = news.share, news.round
            if news.score is not None:
                self._scores[key] = news.score
            self._overseer.show(self._overview(news))

    def stop(self) -> bool:
        """Whether to stop: the time is over, or the overseer asks for it."""
        with self._lock:
            return time.monotonic() >= self._deadline or self._overseer.stop()

    def _enter(self, key: tuple[str, int], run: PlannedRun) -> None:
        rows = run.directory.rows() if run.standing != "new" else []
        share = Pace(run.config).done(rows[-1]) if rows else 0.0
        self._done[key] = 1.0 if run.standing == "finished" else share
        self._rounds[key] = rows[-1].round if rows else 0

    def _overview(self, news: News) -> Overview:
        done = mean(self._done.values())
        gained, elapsed = self._gained / len(self._done), time.monotonic() - self._began
        scores = [score for (name, _), score in self._scores.items() if name == news.row]
        return Overview(
            done,
            sum(all(self._done[each.row.name, run.seed] == 1 for run in each.asked) for each in self._rows),
            len(self._rows),
            sum(self._rounds.values()),
            self._titles[news.row],
            news.round,
            mean(scores) if scores else None,
            elapsed * (1 - done) / gained if gained >= LEAST else None,
            news.metric,
        )


class RowWatcher:
    """Follows the runs of one row through the round loop."""

    def __init__(self, row: PlannedRow, listener: Listener) -> None:
        self._name = row.row.name
        self._listener = listener
        self._paces: dict[int, Pace] = {}

    def started(self, runs: Sequence[Run]) -> None:
        self._paces = {id(run): Pace(run.config) for run in runs}

    def row(self, run: Run, row: Row) -> None:
        share = 1.0 if run.stopped_by else self._paces[id(run)].done(row)
        self._listener.add(News(self._name, run.config.seed, share, row.round, row.score, row.metric))

    def stop(self) -> bool:
        return self._listener.stop()
