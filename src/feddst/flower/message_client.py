"""Sending messages and fetching answers, without Flower's three seconds between polls."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

T = TypeVar("T")

AT_ONCE = 16
"""Messages in one request: so many updates, and no more, are in memory before they are added up."""
SHORTEST, LONGEST = 0.02, 0.25
"""Seconds between polls: more while nothing comes."""


@dataclass(frozen=True)
class Answer:
    """The answer to the message of a name: a message, or why it cannot be read."""

    name: str
    message: Message | None
    fault: str = ""


class MessageClient:
    """Sends the messages of one run to a grid, and fetches the answers."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._pause = SHORTEST

    def send(self, messages: Sequence[Message]) -> list[str]:
        """Send messages; returns the name of each, empty for one that could not be sent."""
        names: list[str] = []
        for some in _at_once(messages):
            taken = set(self._grid.push_messages(list(some)))
            names += [name if (name := one.metadata.message_id) in taken else "" for one in some]
        self._pause = SHORTEST
        return names

    def collect(self, names: Iterable[str]) -> Iterator[list[Answer]]:
        """The answers that have come to messages of these names, some at a time, as they are fetched."""
        for some in _at_once(list(names)):
            came = self._fetched(some)
            if came:
                self._pause = SHORTEST
                yield came
                came.clear()  # frees answers that have been dealt with

    def _fetched(self, names: Sequence[str]) -> list[Answer]:
        """The answers to a few messages. Flower reads what a node has written before we do, and may fail at that."""
        try:
            messages = list(self._grid.pull_messages(list(names)))
        except (OSError, httpx.HTTPError):
            raise
        except Exception as error:
            if len(names) > 1:  # what Flower had read before it failed is lost, and missing at the deadline
                return [answer for name in names for answer in self._fetched([name])]
            return [Answer(names[0], None, f"it cannot be read: {error}")]
        answers = [Answer(message.metadata.reply_to_message_id, message) for message in messages]
        return [answer for answer in answers if answer.name in names]

    def pause(self) -> None:
        """Wait a little before the next poll."""
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST)


def _at_once(things: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(things), AT_ONCE):
        yield things[begin : begin + AT_ONCE]
