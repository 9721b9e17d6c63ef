"""Progress: a live view on a terminal, otherwise a line for each evaluation."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from feddst.cli.interruption import Interruption
from feddst.cli.run_progress import RunProgress
from feddst.cli.screen import say
from feddst.runtime.metrics import Row
from feddst.runtime.pace import progress_line
from feddst.runtime.run import Run
from feddst.runtime.wording import counted, duration, percent, size
from feddst.studies.compare import Turn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

FINISHING = "finishing this round; press Ctrl-C again to stop at once"


class Display(Protocol):
    """How the rounds of one run are shown."""

    def show(self, progress: RunProgress) -> None:
        """A round has ended."""
        ...

    def announce(self, line: str, progress: RunProgress) -> None:
        """Show a line at once; called from a signal handler."""
        ...

    def close(self) -> None:
        """The run is over, or has been stopped."""
        ...


class Lines:
    """One line for each evaluation."""

    def show(self, progress: RunProgress) -> None:
        row = progress.last
        if row is not None and row.score is not None:
            say(progress_line(progress.pace, row, row.score))

    def announce(self, line: str, progress: RunProgress) -> None:
        say(line)

    def close(self) -> None:
        pass


class Reporter:
    """A watcher that shows how runs go, and stops them when the user asks. Use it as a context.

    `opening` is printed once everything is checked: before the first run of a comparison, or a run's first round.
    """

    def __init__(self, interruption: Interruption, opening: str = "") -> None:
        self._interruption = interruption
        self._opening = opening
        self._display: Display | None = None
        self._progress: RunProgress | None = None
        self._turn: Turn | None = None
        interruption.announce = self._announce

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def turn(self, turn: Turn) -> None:
        """Say which run of a comparison is next."""
        self._open()
        self._turn = turn
        how = {"new": "", "resumed": ", resumed", "finished": ": finished already"}[turn.standing]
        say(f"[{turn.place}/{turn.total}] {turn.entry.label}, seed {turn.seed}{how}")

    def started(self, runs: Sequence[Run]) -> None:
        self._open()
        for run in runs:
            say(describe_network(run))
            self._progress = RunProgress.of(run, "" if self._turn is None else _title(self._turn))
            self._display = make_display(self._progress)
            self._interruption.in_rounds = True

    def row(self, run: Run, row: Row) -> None:
        assert self._display is not None
        assert self._progress is not None
        self._progress.add(row)
        self._display.show(self._progress)
        if run.stopped_by:
            self._close()
            if self._turn is not None:
                say(_outcome(run))

    def stop(self) -> bool:
        return self._interruption.asked

    def _open(self) -> None:
        if self._opening:
            say(self._opening)
            self._opening = ""

    def _announce(self) -> None:
        if self._display is not None and self._progress is not None:
            self._display.announce(FINISHING, self._progress)

    def _close(self) -> None:
        self._interruption.in_rounds = False
        if self._display is not None:
            self._display.close()
            self._display = None


def make_display(progress: RunProgress) -> Display:
    """A live view if standard error is a terminal that can show one and rich is there, else lines."""
    console = terminal()
    if console is None:
        return Lines()
    from feddst.cli.live import LiveView

    return LiveView(console, progress)


def make_bar() -> "Progress | None":
    """A bar with a description before it and a text after it, if there is a terminal for it and rich is there."""
    console = terminal()
    if console is None:
        return None
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[text]}"))
    return Progress(*columns, console=console, transient=True, expand=True, redirect_stdout=False)


def terminal() -> "Console | None":
    """Standard error, if it is a terminal on which lines can be drawn again and rich is there."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    return console if console.is_interactive and not console.is_dumb_terminal else None


def describe_network(run: Run) -> str:
    """The size of a run's network, and where the run stands."""
    size = sum(value.numel() for value in run.state.params.values())
    each = run.densities
    kept = f", {percent(each.prunable)} of the prunable ones active, {percent(each.all)} of all"
    density = kept if run.state.masks else ""
    standing = f"; going on after round {run.rows[-1].round}" if run.rows else ""
    return f"network of {size:,} weights and biases{density}{standing}"


def _title(turn: Turn) -> str:
    return f"run {turn.place} of {turn.total}: {turn.entry.label}, seed {turn.seed}"


def _outcome(run: Run) -> str:
    summary = run.summary()
    text = summary.metric.text
    return (
        f"best {text(summary.best)}, final {text(summary.final)} after {counted(summary.rounds, 'round')}, "
        f"{size(run.rows[-1].upload(run.config.accounting))} and {duration(summary.seconds)}"
    )
