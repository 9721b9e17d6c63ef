"""Several watchers in the place of one."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType

from feddst.runtime.loop import Watcher
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.studies.compare import Turn


class Several:
    """Passes every call on to each watcher; stops if one of them wants to. As a context it enters all."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers
        self._entered = ExitStack()

    def __enter__(self) -> "Several":
        with ExitStack() as entered:
            for watcher in self._watchers:
                if isinstance(watcher, AbstractContextManager):
                    entered.enter_context(watcher)
            self._entered = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, trace)

    def turn(self, turn: Turn) -> None:
        """Pass a comparison's next run to the watchers that have `turn`."""
        for watcher in self._watchers:
            hear = getattr(watcher, "turn", None)
            if hear is not None:
                hear(turn)

    def started(self, runs: Sequence[Run]) -> None:
        for watcher in self._watchers:
            watcher.started(runs)

    def row(self, run: Run, row: Row) -> None:
        for watcher in self._watchers:
            watcher.row(run, row)

    def stop(self) -> bool:
        wishes = [watcher.stop() for watcher in self._watchers]
        return any(wishes)
