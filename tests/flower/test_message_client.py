"""Messages are sent and fetched a few at a time, and one that cannot be read is known by its name."""

from collections.abc import Iterable, Sequence

import httpx
import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from feddst.flower.inprocess import InProcessGrid
from feddst.flower.message_client import AT_ONCE, LONGEST, SHORTEST, Answer, MessageClient


class Counting(InProcessGrid):
    """A grid of an app that answers with what it was sent, and fails where it is told to."""

    def __init__(self) -> None:
        app = ClientApp()

        @app.train()
        def echo(message: Message, context: object) -> Message:
            return Message(message.content, reply_to=message)

        super().__init__(app, 1)
        self.pushed: list[int] = []
        self.pulled: list[int] = []
        self.unreadable: set[str] = set()
        self.lost: set[int] = set()
        self.error: Exception = ValueError("no such object")

    def push_messages(self, messages: Iterable[Message]) -> Sequence[str]:
        some = list(messages)
        self.pushed.append(len(some))
        names = list(super().push_messages(some))
        return [name for place, name in enumerate(names) if place not in self.lost]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        names = list(message_ids)
        self.pulled.append(len(names))
        if self.unreadable & set(names):
            raise self.error
        return super().pull_messages(names)


@pytest.fixture
def grid() -> Counting:
    return Counting()


def some_messages(count: int) -> list[Message]:
    return [Message(RecordDict(), 1, "train") for _ in range(count)]


def collected(client: MessageClient, names: Sequence[str]) -> list[Answer]:
    return [answer for answers in client.collect(names) for answer in list(answers)]


def test_messages_go_and_come_a_few_at_a_time(grid: Counting) -> None:
    client = MessageClient(grid)
    names = client.send(some_messages(2 * AT_ONCE + 3))
    assert grid.pushed == [AT_ONCE, AT_ONCE, 3]
    assert len(set(names)) == 2 * AT_ONCE + 3
    sizes = [len(answers) for answers in client.collect(names)]
    assert sizes == grid.pulled == [AT_ONCE, AT_ONCE, 3]
    assert collected(client, names) == []  # what was fetched does not come again


def test_what_could_not_be_sent_has_no_name(grid: Counting) -> None:
    grid.lost = {1}
    names = MessageClient(grid).send(some_messages(3))
    assert [bool(name) for name in names] == [True, False, True]


def test_one_that_cannot_be_read_does_not_keep_the_others_back(grid: Counting) -> None:
    client = MessageClient(grid)
    names = client.send(some_messages(4))
    grid.unreadable = {names[2]}
    found = {answer.name: answer for answer in collected(client, names)}
    assert found.keys() == set(names)
    assert [answer.message is None for answer in map(found.__getitem__, names)] == [False, False, True, False]
    assert found[names[2]].fault == "it cannot be read: no such object"
    assert grid.pulled == [4, 1, 1, 1, 1]


@pytest.mark.parametrize("error", [OSError("no route"), httpx.ConnectError("refused")])
def test_a_network_that_is_down_is_no_matter_of_one_message(error: Exception, grid: Counting) -> None:
    client = MessageClient(grid)
    names = client.send(some_messages(2))
    grid.unreadable, grid.error = set(names), error
    with pytest.raises(type(error), match=str(error)):
        collected(client, names)


def test_pauses_grow_until_something_comes(grid: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("feddst.flower.message_client.time.sleep", slept.append)
    client = MessageClient(grid)
    for _ in range(6):
        client.pause()
    assert slept == [0.02, 0.04, 0.08, 0.16, 0.25, 0.25]
    assert (SHORTEST, LONGEST) == (0.02, 0.25)
    collected(client, client.send(some_messages(1)))
    client.pause()
    assert slept[-1] == SHORTEST
