"""A progress bar for reading and downloading, where there is a terminal to show it."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 1.0


class Meter:
    """Counts work done; after a second, draws a bar if stderr is a terminal and rich is installed.

    `total`, `update`, `reset` and `close` are what pooch asks of a progress bar.
    """

    def __init__(self, title: str, total: int | None = None, *, in_bytes: bool = False) -> None:
        self.title = title
        self.total = total
        self.done = 0
        self._in_bytes = in_bytes
        self._patient_until = time.monotonic() + PATIENCE
        self._bar: Progress | None = None

    def __enter__(self) -> "Meter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def update(self, amount: int = 1) -> None:
        """Count `amount` more of the work as done."""
        self.done += amount
        if self._bar is None and sys.stderr.isatty() and time.monotonic() > self._patient_until:
            self._bar = _bar(self._in_bytes)
            if self._bar:
                self._bar.add_task(self.title)
                self._bar.start()
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=self.done, total=self.total)

    def reset(self) -> None:
        """Count from zero again."""
        self.done = 0

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar:
            self._bar.stop()
            self._bar = None
        self._patient_until = float("inf")


def _bar(in_bytes: bool) -> "Progress | None":
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )
    except ImportError:
        return None
    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
