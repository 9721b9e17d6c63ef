"""A Flower grid in this process: no sockets, no Ray; a client works when its answer is asked for."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from feddst.flower.config import Value

Courier = Callable[[Message, Callable[[Message], Message]], Message | None]
"""Carries a message: may call what it is given, or answer itself, or lose it (None)."""


class InProcessGrid(Grid):
    """`nodes` nodes that run `app`, with partition ids 0, 1, …; see `Courier` for what may go wrong on the way."""

    def __init__(
        self,
        app: ClientApp,
        nodes: int,
        *,
        run_config: Mapping[str, Value] | None = None,
        node_config: Mapping[str, Value] | None = None,
        courier: Courier | None = None,
    ) -> None:
        self._app = app
        self._courier = courier or (lambda message, deliver: deliver(message))
        self._waiting: dict[str, Message] = {}
        self._names = count(1)
        self._run = Run.create_empty(1)
        self._contexts: dict[int, Context] = {}
        for partition in range(nodes):
            own: dict[str, Value] = {**(node_config or {}), "partition-id": partition, "num-partitions": nodes}
            self._contexts[partition + 1] = Context(1, partition + 1, own, RecordDict(), dict(run_config or {}))
        # Flower takes these from the process in which an app runs; here there is only this one.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names: list[str] = []
        for message in messages:
            name = f"message-{next(self._names)}"
            message.metadata.__dict__["_message_id"] = name
            self._waiting[name] = message
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies: list[Message] = []
        for name in message_ids:
            message = self._waiting.get(name)
            reply = None if message is None else self._courier(message, self._answer)
            if reply is not None:
                del self._waiting[name]
                replies.append(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(list(self.push_messages(messages)))

    def _answer(self, message: Message) -> Message:
        context = self._contexts[message.metadata.dst_node_id]
        try:
            return self._app(message, context)
        except Exception as raised:
            # As in Flower, and in its words: an exception of a client is an answer.
            error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(raised)}:<'{raised}'>")
            return Message(error, reply_to=message)
