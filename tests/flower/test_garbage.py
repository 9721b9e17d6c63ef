"""A message that has been read is forgotten at once, and its payload with it."""

import gc
import weakref

from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from feddst.clients.task import Reply
from feddst.core import ClientState
from feddst.flower.inprocess import InProcessGrid
from feddst.flower.messages import read_reply, reply_letter


def test_a_reply_that_was_read_does_not_wait_for_the_garbage_collector() -> None:
    InProcessGrid(ClientApp(), 0)  # Flower's messages need to know of a run
    letter = Message(RecordDict(), 1, "train.feddst")
    letter.metadata.__dict__["_message_id"] = "letter"
    answer = reply_letter(letter, Reply(b"payload", ClientState(), 1.0))
    gc.disable()
    try:
        assert isinstance(read_reply(answer), Reply)
        content = weakref.ref(answer.content)
        del answer
        assert content() is None
    finally:
        gc.enable()
