"""Live progress: a bar on a terminal, otherwise a line for each evaluation."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from feddst.cli.interruption import Interruption
from feddst.cli.screen import say
from feddst.experiment.compare import Turn
from feddst.experiment.config import RunConfig
from feddst.experiment.metrics import Row
from feddst.experiment.pace import Pace, progress_line
from feddst.experiment.run import Run
from feddst.experiment.wording import counted, duration, mib, percent

if TYPE_CHECKING:
    from rich.progress import Progress

FINISHING = "finishing this round; press Ctrl-C again to stop at once"


class Display(Protocol):
    """How the rounds of one run are shown."""

    def show(self, pace: Pace, row: Row, evaluated: Row | None) -> None:
        """A round has ended; `evaluated` is the last row with an evaluation."""
        ...

    def close(self) -> None:
        """The run is over, or has been stopped."""
        ...


class Lines:
    """One line for each evaluation."""

    def show(self, pace: Pace, row: Row, evaluated: Row | None) -> None:
        if row is evaluated and row.accuracy is not None:
            say(progress_line(pace, row, row.accuracy))

    def close(self) -> None:
        pass


class Bar:
    """A bar with the latest numbers beside it. Lines written to standard error meanwhile go above it."""

    def __init__(self, bar: "Progress") -> None:
        self._bar = bar
        self._task = bar.add_task("round 1", total=1.0, text="")
        bar.start()

    def show(self, pace: Pace, row: Row, evaluated: Row | None) -> None:
        score = percent(evaluated.accuracy) if evaluated and evaluated.accuracy is not None else "–"
        speed = f"{pace.seconds_a_round:.1f} s/round  {duration(pace.seconds_left(row))} left"
        text = f"{score}  {mib(row, pace.accounting)}  {speed}"
        self._bar.update(self._task, completed=pace.done(row), description=f"round {row.round}", text=text)

    def close(self) -> None:
        self._bar.stop()


class Reporter:
    """A watcher that shows how runs go, and stops them when the user asks. Use it as a context.

    `opening` is said before the first turn of a comparison, once everything has been checked.
    """

    def __init__(self, interruption: Interruption, opening: str = "") -> None:
        self._interruption = interruption
        self._opening = opening
        self._display: Display | None = None
        self._pace = Pace(RunConfig())
        self._evaluated: Row | None = None
        self._turn: Turn | None = None
        interruption.announce = self._announce

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def turn(self, turn: Turn) -> None:
        """Say whose turn it is in a comparison."""
        if self._turn is None:
            say(self._opening)
        self._turn = turn
        how = {"new": "", "resumed": ", resumed", "finished": ": finished already"}[turn.standing]
        say(f"[{turn.place}/{turn.total}] {turn.entry.label}, seed {turn.seed}{how}")

    def started(self, runs: Sequence[Run]) -> None:
        for run in runs:
            say(describe_network(run))
            self._pace = Pace(run.config)
            self._evaluated = next((row for row in reversed(run.rows) if row.accuracy is not None), None)
            self._display = make_display()
            self._interruption.in_rounds = True

    def row(self, run: Run, row: Row) -> None:
        assert self._display is not None
        self._pace.add(row)
        self._evaluated = row if row.accuracy is not None else self._evaluated
        self._display.show(self._pace, row, self._evaluated)
        if run.stopped_by:
            self._close()
            if self._turn is not None:
                say(_outcome(run))

    def stop(self) -> bool:
        return self._interruption.asked

    def _announce(self) -> None:
        say(FINISHING)

    def _close(self) -> None:
        self._interruption.in_rounds = False
        if self._display is not None:
            self._display.close()
            self._display = None


def make_display() -> Display:
    """A bar if standard error is a terminal and rich is there, else lines."""
    bar = make_bar()
    return Lines() if bar is None else Bar(bar)


def make_bar() -> "Progress | None":
    """A bar with a description before it and a text after it, if there is a terminal for it and rich is there."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        return None
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[text]}"))
    return Progress(*columns, console=Console(stderr=True), transient=True, expand=True, redirect_stdout=False)


def describe_network(run: Run) -> str:
    """The size of a run's network, and where the run stands."""
    size = sum(value.numel() for value in run.state.params.values())
    masked = sum(mask.numel() for mask in run.state.masks.values())
    active = sum(int(mask.sum()) for mask in run.state.masks.values())
    density = f", {percent(active / masked)} of the weights active" if masked else ""
    standing = f"; going on after round {run.rows[-1].round}" if run.rows else ""
    return f"network of {size:,} weights and biases{density}{standing}"


def _outcome(run: Run) -> str:
    summary = run.summary()
    return (
        f"best {percent(summary.best)}, final {percent(summary.final)} after {counted(summary.rounds, 'round')}, "
        f"{mib(run.rows[-1], run.config.accounting)} and {duration(summary.seconds)}"
    )
