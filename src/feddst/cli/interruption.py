"""Ctrl-C: the first asks to stop after the round, the second stops at once."""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interruption:
    """While this is entered, SIGINT sets `asked` and calls `announce`; a second one raises KeyboardInterrupt.

    Outside of rounds there is nothing to finish: unless `in_rounds`, the first one raises too. This also holds where
    the signal was ignored before, as in a script's background jobs: `kill -INT` stops a run there.
    """

    def __init__(self) -> None:
        self.asked = False
        self.in_rounds = False
        self.announce: Callable[[], None] = lambda: None
        self._before: Any = None

    def __enter__(self) -> "Interruption":
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self.in_rounds:
            raise KeyboardInterrupt
        self.asked = True
        self.announce()
