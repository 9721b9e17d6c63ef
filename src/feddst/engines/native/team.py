"""Threads that share a list of tasks; the one who asks is one of them, so that nobody competes with the workers."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
Task = Callable[[], T]


class Team:
    """The calling thread and so many helpers that `members` work at once."""

    def __init__(self, members: int) -> None:
        self._helping = members - 1
        self._helpers = ThreadPoolExecutor(max(1, self._helping), "feddst-native", lambda: torch.set_num_threads(1))

    def each(self, tasks: Sequence[Task[T]]) -> Iterator[tuple[int, T]]:
        """Carry out the tasks, giving each result with its task's index, in any order."""
        share = _Share(tasks)
        for _ in range(min(self._helping, len(tasks) - 1)):
            self._helpers.submit(share.help)
        try:
            for _ in tasks:
                yield share.next()
        finally:
            share.end()

    def close(self) -> None:
        """Wait for the helpers to leave off."""
        self._helpers.shutdown(cancel_futures=True)


class _Share(Generic[T]):
    """Tasks that are not begun yet, and results that nobody has fetched yet."""

    def __init__(self, tasks: Sequence[Task[T]]) -> None:
        self._open = list(enumerate(tasks))[::-1]
        self._lock = threading.Lock()
        self._done: SimpleQueue[tuple[int, T] | BaseException] = SimpleQueue()

    def help(self) -> None:
        """Work until no task is left."""
        try:
            while (task := self._take()) is not None:
                self._done.put((task[0], task[1]()))
        except BaseException as error:
            self._done.put(error)

    def next(self) -> tuple[int, T]:
        """A result: one that is there, or that of a task done here and now, or else the next one to come."""
        try:
            return self._fetch(wait=False)
        except Empty:
            task = self._take()
        return self._fetch(wait=True) if task is None else (task[0], task[1]())

    def end(self) -> None:
        """Have the helpers begin nothing more."""
        with self._lock:
            self._open.clear()

    def _take(self) -> tuple[int, Task[T]] | None:
        with self._lock:
            return self._open.pop() if self._open else None

    def _fetch(self, *, wait: bool) -> tuple[int, T]:
        found = self._done.get(block=wait)
        if isinstance(found, BaseException):
            raise found
        return found
