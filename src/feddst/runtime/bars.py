"""What a notebook shows while a run goes on: a bar for each run, drawn again in place."""

import time
from collections.abc import Sequence
from html import escape
from types import TracebackType
from typing import Self

from feddst.notebook import Output, Shown, in_notebook
from feddst.runtime.lines import Lines
from feddst.runtime.metrics import Row
from feddst.runtime.pace import Pace, progress_line
from feddst.runtime.run import Run
from feddst.runtime.wording import counted

EVERY = 0.2
"""Seconds between two drawings of a bar."""
BEFORE = "before the first round"


class Bars(Lines):
    """A bar for each run, and its last evaluation. As a context it says which runs were stopped."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[int, Bar] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = "stopped" if kind is None or not issubclass(kind, Exception) else "failed"
        for bar in self._open.values():
            bar.end(ending)
        self._open.clear()

    def started(self, runs: Sequence[Run]) -> None:
        super().started(runs)
        for run in runs:
            self._open[id(run)] = Bar(self.name_of(run), self._paces[id(run)], run.rows)

    def row(self, run: Run, row: Row) -> None:
        self._paces[id(run)].add(row)
        self._open[id(run)].add(row)
        if run.stopped_by:
            self._open.pop(id(run)).end("finished")


class Bar:
    """One run's bar; that of a resumed run begins with the rows it had."""

    def __init__(self, name: str, pace: Pace, rows: Sequence[Row]) -> None:
        self._name = name
        self._pace = pace
        self._output = Output()
        self._done = 0.0
        self._evaluated = False
        self._drawn = -EVERY
        self._said = BEFORE
        for row in rows:
            self._note(row)
        self._draw(self._said)

    def add(self, row: Row) -> None:
        """A round has ended."""
        self._note(row)
        if time.monotonic() >= self._drawn + EVERY:
            self._draw(self._said)

    def end(self, ending: str) -> None:
        """No more rounds follow."""
        self._draw(f"{ending}; {self._said}")

    def _note(self, row: Row) -> None:
        self._done = self._pace.done(row)
        if row.score is not None:
            self._said = progress_line(self._pace, row, row.score)
        elif not self._evaluated:
            self._said = f"{counted(row.round, 'round')}, no evaluation yet"
        self._evaluated |= row.score is not None

    def _draw(self, text: str) -> None:
        self._drawn = time.monotonic()
        bar = f'<progress value="{self._done:.3f}" max="1" style="width: 16em"></progress>'
        html = f"<div><b>{escape(self._name)}</b> {bar} {escape(text)}</div>"
        self._output.show(Shown(html, f"{self._name}, {text}"))


def usual_display() -> Lines:
    """What a Python user sees: bars in a notebook, else lines."""
    return Bars() if in_notebook() else Lines()
