"""Threads that share a list of tasks. The calling thread works too, so it never competes with its helpers."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
Task = Callable[[], T]
Deliver = Callable[[int, T], object]
"""Takes a result, and the index of its task."""


class Team:
    """The calling thread and its helpers, `members` threads in all."""

    def __init__(self, members: int) -> None:
        self._helping = members - 1
        self._helpers = ThreadPoolExecutor(max(1, self._helping), "feddst-native", lambda: torch.set_num_threads(1))

    def share(self, tasks: Sequence[Task[T]], deliver: Deliver[T]) -> None:
        """Carry out the tasks, and deliver their results one at a time, in any order.

        After a failure no other task begins, and nothing more is delivered.
        """
        share = _Share(tasks, deliver)
        helpers = [self._helpers.submit(share.plan) for _ in range(min(self._helping, len(tasks) - 1))]
        try:
            share.plan()
            for helper in helpers:
                helper.result()
        except BaseException:
            share.abandon()
            raise
        if share.failures:
            raise share.failures[min(share.failures)]

    def close(self) -> None:
        """Wait for the helpers to stop."""
        self._helpers.shutdown(cancel_futures=True)


class _Share(Generic[T]):
    """Tasks that have not begun, and the errors of those that failed, by index."""

    def __init__(self, tasks: Sequence[Task[T]], deliver: Deliver[T]) -> None:
        self.failures: dict[int, Exception] = {}
        self._open = list(enumerate(tasks))[::-1]
        self._deliver = deliver
        self._abandoned = False
        self._delivering = threading.Lock()

    def plan(self) -> None:
        """Do tasks until there are none left."""
        while self._open:
            try:
                index, task = self._open.pop()
            except IndexError:  # another thread was faster
                return
            try:
                self._hand_over(index, task())
            except Exception as error:
                self.failures[index] = error
                self.abandon()

    def abandon(self) -> None:
        """Begin and deliver nothing more."""
        self._abandoned = True
        self._open.clear()

    def _hand_over(self, index: int, result: T) -> None:
        with self._delivering:
            if not self._abandoned:
                self._deliver(index, result)
