"""What a Python user sees while a run goes on: one line for each evaluation."""

import sys
from collections.abc import Sequence

from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.pace import Pace, progress_line
from feddst.runtime.run import Run


class Lines(Silent):
    """Writes to standard error; the runs that it follows are told apart by their names."""

    def __init__(self) -> None:
        self._paces: dict[int, Pace] = {}

    def started(self, runs: Sequence[Run]) -> None:
        self._paces |= {id(run): Pace(run.config) for run in runs}

    def row(self, run: Run, row: Row) -> None:
        pace = self._paces[id(run)]
        pace.add(row)
        if row.score is not None:
            print(f"{self.name_of(run)}, {progress_line(pace, row, row.score)}", file=sys.stderr, flush=True)

    def name_of(self, run: Run) -> str:
        """What its lines begin with."""
        return run.name
