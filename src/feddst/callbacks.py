"""Callbacks: what hears how runs go, and may end them.

`feddst.run(config, callbacks=[EarlyStopping(patience=5), TensorBoard("events")])`. A callback is a `Watcher`, and so
are the logs of `feddst.logs`.
"""

import math
from collections.abc import Sequence
from types import TracebackType
from typing import ClassVar, Self

from feddst.core import Metric
from feddst.errors import OptionError
from feddst.options import hint, one_of
from feddst.runtime.metrics import SCORES, Row
from feddst.runtime.run import Run

__all__ = ["Callback", "EarlyStopping"]

LOSSES = ("loss", "train_loss")
"""The columns of every run by which it can be judged besides its metrics."""


class Callback:
    """The base of your own callbacks: override what you need, and set `stop_training` to end the run after its round.

    `run` is the run in progress (`run.config`, `run.state`, `run.rows`); a callback changes nothing in it.
    """

    stop_training: bool = False
    ends_runs: ClassVar[bool] = False
    """Whether it is made to end runs early; then `feddst.compare`, whose runs go to their end, refuses it."""
    _open: tuple[Run, ...] = ()

    def on_run_begin(self, run: Run) -> None:
        """The first round is about to begin; that of a resumed run, which has the rows it had."""

    def on_evaluation(self, run: Run, row: Row) -> None:
        """A round with an evaluation has ended; `on_round_end` follows."""

    def on_round_end(self, run: Run, row: Row) -> None:
        """A round has ended; `row` is the last of `run.rows`."""

    def on_run_end(self, run: Run) -> None:
        """The run is over. `run.stopped_by` is empty if it was stopped or has failed."""

    def started(self, runs: Sequence[Run]) -> None:
        self.stop_training = False
        self._open = tuple(runs)
        for run in runs:
            self.on_run_begin(run)

    def row(self, run: Run, row: Row) -> None:
        if row.score is not None:
            self.on_evaluation(run, row)
        self.on_round_end(run, row)
        if run.stopped_by:
            self._end([run])

    def stop(self) -> bool:
        return self.stop_training

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._open)

    def _end(self, runs: Sequence[Run]) -> None:
        self._open = tuple(run for run in self._open if run not in runs)
        for run in runs:
            self.on_run_end(run)


class EarlyStopping(Callback):
    """Ends a run that has not improved in `patience` evaluations.

    `metric` is a column of the run's rows, by default its score; what is better follows from it. A value counts as
    better if it is so by more than `min_delta`. Afterwards `best` and `best_round` are those of the best evaluation,
    and `stopped_round` is the round in which it ended the run, or None. The run can be resumed; rounds before that
    count too.
    """

    ends_runs = True

    def __init__(self, patience: int = 10, metric: str = "", min_delta: float = 0.0) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise OptionError(f"patience must be a whole number of evaluations, at least 1, got {patience!r}")
        if not min_delta >= 0:
            raise OptionError(f"min_delta must be at least 0, got {min_delta!r}")
        self.patience = patience
        self.metric = metric
        self.min_delta = min_delta
        self._column, self._higher = metric, True
        self.best = math.nan
        self.best_round = 0
        self.stopped_round: int | None = None
        self._waited = 0

    def on_run_begin(self, run: Run) -> None:
        columns = directions(run.metrics)
        self._column = self.metric or run.metrics[0].name
        if self._column not in columns:
            raise OptionError(f"metric must be {one_of(columns)}, got {self.metric!r}{hint(self.metric, columns)}")
        self._higher = columns[self._column]
        self.best, self.best_round, self.stopped_round, self._waited = math.nan, 0, None, 0
        for row in run.rows:
            self._note(row)

    def on_round_end(self, run: Run, row: Row) -> None:
        self._note(row)
        if self._waited >= self.patience:
            self.stop_training = True
            self.stopped_round = row.round

    def _note(self, row: Row) -> None:
        value = getattr(row, self._column) if self._column in LOSSES else row.value(self._column)
        if value is None:
            return
        gain = value - self.best if self._higher else self.best - value
        if gain > self.min_delta or (math.isnan(self.best) and not math.isnan(value)):
            self.best, self.best_round, self._waited = value, row.round, 0
        else:
            self._waited += 1


def directions(metrics: Sequence[Metric]) -> dict[str, bool]:
    """The columns by which a run with these metrics can be judged, and whether more is better."""
    found = {metric.name + kind: metric.higher_is_better for metric in metrics for kind in SCORES}
    for metric in metrics[1:]:
        del found[f"{metric.name}_personal"]  # clients' own models are judged by the first metric alone
    return found | dict.fromkeys(LOSSES, False)
