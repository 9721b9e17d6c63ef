"""What all logs have in common: they follow runs, change nothing in them, and never end one."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Literal, Protocol, Self

from feddst.core import Registry
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.studies.compare import Turn

Ending = Literal["finished", "stopped", "failed"]
"""How a run ended: `stopped` is by the user or a watcher."""

warnings = logging.getLogger(__name__)


class Book(Protocol):
    """One run's log; rounds before `first` are in it already."""

    @property
    def first(self) -> int: ...

    def write(self, rows: Sequence[Row]) -> None:
        """Add rounds."""
        ...

    def close(self, ending: Ending) -> None:
        """End the log: no more rounds follow."""
        ...


@dataclass
class _Followed:
    """A run's book, the rows that are not in it yet, and when they may be written."""

    book: Book
    pending: list[Row] = field(default_factory=list)
    due: float = 0.0
    failed: bool = False


class Log(ABC):
    """A watcher that logs every round. As a context it also notes that a run was stopped or failed.

    Rows are written at most once in `every` seconds. Where that fails, there is one warning and the run goes on; when
    it is over, what is missing is tried once more. `tell` is called with a line on slow steps.
    """

    registry: "ClassVar[Registry[type[Log]]]"
    name: ClassVar[str]
    every: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self.tell: Callable[[str], None] = lambda line: None
        self._followed: dict[Run, _Followed] = {}

    @abstractmethod
    def check(self) -> None:
        """Raise `OptionError` if this log cannot be written here; to be called before any work."""

    @abstractmethod
    def place(self, out: Path) -> str:
        """Where to look at the logs of runs in `out`."""

    @abstractmethod
    def begin(self, run: Run) -> Book:
        """The book of a run, new or continued."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = kind is not None and issubclass(kind, Exception)
        for run in list(self._followed):
            self._end(run, "failed" if failed else "stopped")

    def turn(self, turn: Turn) -> None:
        """The next run of a comparison; `started` follows, if there is anything to do."""

    def started(self, runs: Sequence[Run]) -> None:
        self.check()
        for run in runs:
            self._try(run, partial(self._follow, run))

    def row(self, run: Run, row: Row) -> None:
        followed = self._followed.get(run)
        if followed is None:
            return
        if row.round >= followed.book.first:
            followed.pending.append(row)
        if run.stopped_by:
            self._end(run, "finished")
        elif not followed.failed and time.monotonic() >= followed.due:
            followed.due = time.monotonic() + self.every
            followed.failed = not self._try(run, partial(_write, followed))

    def stop(self) -> bool:
        return False

    def _follow(self, run: Run) -> None:
        book = self.begin(run)
        self._followed[run] = _Followed(book, [row for row in run.rows if row.round >= book.first])

    def _end(self, run: Run, ending: Ending) -> None:
        followed = self._followed.pop(run)

        def close() -> None:
            _write(followed)
            followed.book.close(ending)

        self._try(run, close, silent=followed.failed)

    def _try(self, run: Run, action: Callable[[], None], *, silent: bool = False) -> bool:
        """Do what may fail; returns whether it succeeded."""
        try:
            action()
        except Exception as error:
            if not silent:
                reason = " ".join(str(error).split()) or type(error).__name__
                warnings.warning("the %s log of %s cannot be written: %s; the run goes on", self.name, run.name, reason)
            return False
        return True


LOGS: Registry[type[Log]] = Registry("log", Log, classes=True)
"""Every log, by the name a user types."""
Log.registry = LOGS


def _write(followed: _Followed) -> None:
    if followed.pending:
        followed.book.write(followed.pending)
        followed.pending = []
