"""Sending messages and fetching answers, without Flower's three seconds between two looks."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

T = TypeVar("T")

AT_ONCE = 16
"""Messages in one request: so many updates, and no more, are in memory before they are added up."""
SHORTEST, LONGEST = 0.02, 0.25
"""Seconds between two looks: more while nothing comes."""


class Post:
    """Messages of one run on a grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._pause = SHORTEST

    def send(self, letters: Sequence[Message]) -> list[str]:
        """Send letters; returns the name of each, empty for one that could not be sent."""
        names: list[str] = []
        for some in _at_once(letters):
            taken = set(self._grid.push_messages(list(some)))
            names += [name if (name := letter.metadata.message_id) in taken else "" for letter in some]
        self._pause = SHORTEST
        return names

    def collect(self, names: Iterable[str]) -> Iterator[Message]:
        """The answers to letters of these names that have come by now."""
        for some in _at_once(list(names)):
            came = list(self._grid.pull_messages(list(some)))
            if came:
                self._pause = SHORTEST
            while came:  # so that nobody holds what has been dealt with
                yield came.pop()

    def pause(self) -> None:
        """Wait a little before the next look."""
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST)


def _at_once(things: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(things), AT_ONCE):
        yield things[begin : begin + AT_ONCE]
