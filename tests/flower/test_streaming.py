"""However many clients a round has, only a few updates are in memory at once."""

import weakref
from collections.abc import Callable
from typing import Any

from flwr.app import Message

from feddst.data import Federation
from feddst.flower.message_client import AT_ONCE
from feddst.flower.messages import TRAIN
from feddst.runtime import RunConfig

CLIENTS = 60


def test_updates_are_added_up_as_they_come(
    configure: Callable[..., RunConfig], federation_of: Callable[[int], Federation], play: Callable[..., Any]
) -> None:
    there: list[weakref.ref[Message]] = []
    most = 0

    def count(message: Message, work: Callable[[Message], Message]) -> Message:
        nonlocal most
        reply = work(message)
        if message.metadata.message_type == TRAIN:
            there.append(weakref.ref(reply))
            most = max(most, sum(each() is not None for each in there))
        return reply

    config = configure(data__clients=CLIENTS, cohort__size=CLIENTS, rounds=1)
    seen = play(config, data=federation_of(CLIENTS), courier=count)
    assert [row.clients for row in seen.rows] == [CLIENTS]
    assert len(there) == CLIENTS
    # One more than are fetched at once: the one that was dealt with last.
    assert AT_ONCE <= most <= AT_ONCE + 1
    assert sum(each() is not None for each in there) == 0
