"""A message that has been read is forgotten at once, and its payload with it."""

import gc
import weakref

from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from feddst.flower.inprocess import InProcessGrid
from feddst.flower.messages import answer_message, read_answer
from feddst.wire import ClientResult


def test_an_answer_that_was_read_does_not_wait_for_the_garbage_collector() -> None:
    InProcessGrid(ClientApp(), 0)  # Flower's messages need to know of a run
    asked = Message(RecordDict(), 1, "train.feddst")
    asked.metadata.__dict__["_message_id"] = "message"
    answer = answer_message(asked, ClientResult(b"payload", loss=1.0))
    gc.disable()
    try:
        assert read_answer(answer).payload == b"payload"
        content = weakref.ref(answer.content)
        del answer
        assert content() is None
    finally:
        gc.enable()
