"""Several watchers in the place of one: what `callbacks` become."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from inspect import isclass
from types import TracebackType
from typing import Any

from feddst.errors import OptionError
from feddst.runtime.loop import Watcher
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run

_HOOKS = ("started", "row", "stop")


class Several:
    """Passes every call on to each watcher; stops if one of them wants to. As a context it enters all.

    A `guest` is called first, and is not entered: whoever made it does so. An exception in a watcher has a note that
    names it.
    """

    def __init__(self, *watchers: Watcher, guest: Watcher | None = None) -> None:
        self._own = watchers
        self._watchers = watchers if guest is None else (guest, *watchers)
        self._entered = ExitStack()

    def __enter__(self) -> "Several":
        with ExitStack() as entered:
            for watcher in self._own:
                if isinstance(watcher, AbstractContextManager):
                    entered.enter_context(watcher)
            self._entered = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, trace)

    def turn(self, turn: Any) -> None:
        """Pass a comparison's next run, a `Turn`, to the watchers that have `turn`."""
        for watcher in self._watchers:
            hear = getattr(watcher, "turn", None)
            if hear is not None:
                hear(turn)

    def started(self, runs: Sequence[Run]) -> None:
        for watcher in self._watchers:
            with _named(watcher, "before the first round"):
                watcher.started(runs)

    def row(self, run: Run, row: Row) -> None:
        for watcher in self._watchers:
            with _named(watcher, f"after round {row.round} of {run.name}"):
                watcher.row(run, row)

    def stop(self) -> bool:
        wishes = [watcher.stop() for watcher in self._watchers]
        return any(wishes)


def check_callbacks(callbacks: Sequence[Watcher]) -> None:
    """Raise `OptionError` unless this is a list of watchers."""
    if isclass(callbacks) or not isinstance(callbacks, Sequence):
        name = callbacks.__name__ if isclass(callbacks) else type(callbacks).__name__
        raise OptionError(f"callbacks must be a list, such as [feddst.callbacks.EarlyStopping()], got {name}")
    for callback in callbacks:
        if isclass(callback):
            raise OptionError(f"callbacks must hold objects, got the class {callback.__name__}: call it first")
        if not all(callable(getattr(callback, hook, None)) for hook in _HOOKS):
            raise OptionError(
                f"callbacks must hold objects of classes that inherit from feddst.Callback, or have "
                f"{', '.join(_HOOKS[:-1])} and {_HOOKS[-1]}, got {type(callback).__name__}"
            )


@contextmanager
def _named(watcher: Watcher, when: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not isinstance(watcher, Several):
            error.add_note(f"raised by the callback {type(watcher).__name__}, {when}")
        raise
