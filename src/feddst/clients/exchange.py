"""The client's end of the wire: bytes in, work, bytes out."""

import threading
from collections.abc import Callable, Collection

from torch import nn

from feddst.clients.client import Client, finished
from feddst.core import ClientState, Update
from feddst.errors import DivergenceError, WireError
from feddst.models import persistent_buffers
from feddst.wire import (
    BroadcastDecoder,
    ClientResult,
    ClientTask,
    Layout,
    Reference,
    decode_update,
    encode_update,
    model_layout,
)
from feddst.wire.feedback import remainder_of


class TaskReader:
    """Reads the messages of a round's tasks; messages with the same content are decoded once and shared."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._decoders: dict[frozenset[str], BroadcastDecoder] = {}
        self._read: dict[object, Reference] = {}

    def read(self, task: ClientTask) -> ClientTask:
        """The task with its message read."""
        message, keep = task.message, task.plan.keep
        key = (message.payload, message.held, keep)
        with self._lock:
            if keep not in self._decoders:
                self._decoders[keep] = BroadcastDecoder(layout_of(self._module, keep))
            if key not in self._read:
                self._read[key] = self._decoders[keep].read(message.payload, message.held)
            return task.read_as(self._read[key])


def answer(task: ClientTask, train_client: Callable[[ClientTask], Client]) -> ClientResult:
    """Carry out a task whose message has been read, and encode the update."""
    try:
        client = train_client(task)
        update, state = finished(client)
    except DivergenceError as error:
        return ClientResult.failed(str(error), diverged=True)
    if task.wire.feedback:
        payload, state = _encode_with_feedback(update, state, task)
    else:
        payload = encode_update(update, task)
    return ClientResult(payload, state, client.loss)


def _encode_with_feedback(update: Update, state: ClientState, task: ClientTask) -> tuple[bytes, ClientState]:
    """The payload of an update plus the client's remainder, and the state with the new remainder."""
    remainder = remainder_of(task.sent, task.plan, update.masks)
    whole = remainder.added(update, state)
    payload = encode_update(whole, task)
    try:
        arrived = decode_update(payload, task)
    except WireError:  # the server will refuse it too
        return payload, state
    return payload, remainder.written(state, remainder.left_out(whole, arrived))


def layout_of(module: nn.Module, keep: Collection[str] = ()) -> Layout:
    """The layout of broadcasts of this module to clients that keep some parameters to themselves."""
    params = {name: value for name, value in module.named_parameters() if name not in keep}
    return model_layout(params, dict(persistent_buffers(module)))
