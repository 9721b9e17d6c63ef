"""Signals that ask a program to stop, while it has other processes to stop first."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, `kill`, and a terminal that was closed."""


class Signals:
    """While this is entered, the first of `ASKING` raises KeyboardInterrupt, and all after it only set `hurry`.

    Stopping that has begun is never broken off, whether a signal or the attribute `stopping` began it. Signals that
    are ignored, as under `nohup`, stay so. Outside the main thread nothing changes.
    """

    def __init__(self) -> None:
        self.stopping = False
        self.hurry = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Signals":
        self.stopping = self.hurry = False
        if threading.current_thread() is threading.main_thread():
            for number in ASKING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stopping:
            self.hurry = True
            return
        self.stopping = True
        raise KeyboardInterrupt
