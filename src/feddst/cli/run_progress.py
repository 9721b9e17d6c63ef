"""How a run has gone so far: what the live view draws."""

import time
from dataclasses import dataclass, field

from feddst.core.metric import Metric
from feddst.runtime.config import RunConfig
from feddst.runtime.metrics import ACCURACY, Row
from feddst.runtime.pace import Pace
from feddst.runtime.run import Run


@dataclass(frozen=True)
class Score:
    """An evaluation."""

    round: int
    score: float


@dataclass
class RunProgress:
    """One run, row by row; `title` says which of several it is, `notice` what the user should know now.

    `density_all` is None after rows of versions that did not have it.
    """

    config: RunConfig
    density: float
    title: str = ""
    notice: str = ""
    last: Row | None = None
    scores: list[Score] = field(default_factory=list)
    moved: Row | None = None
    density_all: float | None = None
    metric: Metric = ACCURACY
    heard: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.pace = Pace(self.config)

    @classmethod
    def of(cls, run: Run, title: str = "") -> "RunProgress":
        """The run up to now: that of a resumed run begins with the rounds it had."""
        progress = cls(run.config, run.densities.prunable, title, density_all=run.densities.all, metric=run.metric)
        for row in run.rows:
            progress._note(row)
        return progress

    def add(self, row: Row) -> None:
        """A round has ended."""
        self.pace.add(row)
        self._note(row)
        self.heard = time.monotonic()

    @property
    def best(self) -> Score | None:
        """The best evaluation, the first of equals."""
        known = [one for one in self.scores if one.score == one.score]
        return max(known, key=lambda one: self.metric.merit(one.score), default=None)

    def done(self) -> float:
        """The share of the run that is over."""
        return self.pace.done(self.last) if self.last is not None else 0.0

    def seconds_left(self) -> float | None:
        """How long it will still take from now; None before the first round has been timed."""
        if self.last is None or not self.pace.seconds_a_round:
            return None
        return max(0.0, self.pace.seconds_left(self.last) - (time.monotonic() - self.heard))

    def _note(self, row: Row) -> None:
        self.last, self.density, self.density_all = row, row.density, row.density_all
        if row.score is not None:
            self.scores.append(Score(row.round, row.score))
        if row.entered or row.left:
            self.moved = row
