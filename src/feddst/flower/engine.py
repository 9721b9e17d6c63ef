"""The engine whose clients are Flower nodes."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from flwr.app import Message
from flwr.serverapp import Grid

from feddst.engines.base import Engine, EvalTask, Evaluation, Sink
from feddst.flower.config import FlowerConfig
from feddst.flower.failures import FailureTracker
from feddst.flower.message_client import AT_ONCE, Answer, MessageClient
from feddst.flower.messages import OTHER_CLIENT, read_answer, size_of, task_message
from feddst.flower.nodes import Nodes
from feddst.wire import ClientResult, ClientTask

LIFE = 2.0
"""How long a message lives, in deadlines: what comes late should still come, and be counted."""


@dataclass
class _PendingRequest:
    """A task that was sent: its index, its client, and when to stop looking for its answer."""

    index: int
    client: int
    until: float


class FlowerEngine(Engine):
    """Sends tasks to nodes, and hands over their answers until there are enough or the deadline has passed.

    `run` names the run, for what clients store; `late` is called with the bytes that came after their round;
    `evaluate` evaluates models on this machine; a round does not end with fewer than `least` answers while more may
    come. `images` is filled with each client's number of images.
    """

    def __init__(
        self,
        grid: Grid,
        config: FlowerConfig,
        *,
        run: str,
        clients: int,
        images: dict[int, int],
        evaluate: Callable[[Sequence[EvalTask]], list[Evaluation]],
        late: Callable[[int], None],
        spare: int,
        least: int = 1,
    ) -> None:
        self._config = config
        self._run = run
        self._spare, self._least = spare, least
        self._messages = MessageClient(grid)
        self.nodes = Nodes(
            grid,
            self._messages,
            clients,
            images,
            most_images=config.most_images,
            ttl=config.wait + LIFE * config.deadline,
        )
        self._failures = FailureTracker(config.failures, config.rest)
        self._evaluate = evaluate
        self._late = late
        self._out: dict[str, _PendingRequest] = {}
        self._overdue: dict[str, _PendingRequest] = {}

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        end = time.monotonic() + self._config.deadline
        enough = max(1, min(len(tasks), max(self._least, len(tasks) - self._spare)))
        self._await_anybody([task.client for task in tasks], end)
        self._hand_out(tasks, sink)
        while self._out and enough and time.monotonic() < end:
            for answers in self._messages.collect(list(self._overdue)):
                for answer in answers:
                    self.take(answer, sink)
            for answers in self._messages.collect(list(self._out)):
                for answer in answers:
                    if enough:
                        enough -= self.take(answer, sink)
                    elif self._out.pop(answer.name, None) is not None:
                        self._come_late(answer)
                if not enough:
                    break
            else:
                self.nodes.look()
                self._messages.pause()
        self.call_time(in_time=not enough)

    def _hand_out(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        """Send the messages of a round, a few at a time, to keep few in memory."""
        composed = self.compose(tasks, sink)
        while some := list(islice(composed, AT_ONCE)):
            sent = self._messages.send([message for _, message in some])
            for (index, message), name in zip(some, sent, strict=True):
                if name:
                    self.expect(message, index, tasks[index].client)
                else:
                    sink.result(index, ClientResult.failed("the message could not be sent", asked=False))

    def _await_anybody(self, clients: Sequence[int], end: float) -> None:
        """Wait until at least one of these clients has a node."""
        self.nodes.look()
        while clients and all(self.nodes.of(client) is None for client in clients) and time.monotonic() < end:
            self._messages.pause()
            self.nodes.look()

    def compose(self, tasks: Sequence[ClientTask], sink: Sink) -> Iterator[tuple[int, Message]]:
        """The messages of a round, with their tasks' indices; a client that has no node, or rests, gets none."""
        self._failures.next_round()
        self.nodes.look()
        there = [task.client for task in tasks if self.nodes.of(task.client) is not None]
        all_rest = all(map(self._failures.rests, there))  # then none does: clients are not at fault
        for index, task in enumerate(tasks):
            node = self.nodes.of(task.client)
            if node is None or (self._failures.rests(task.client) and not all_rest):
                reason = "it rests after several failures" if node is not None else "no node serves it now"
                sink.result(index, ClientResult.failed(reason, asked=False))
                continue
            yield index, task_message(node, self._run, task, LIFE * self._config.deadline)

    def expect(self, message: Message, index: int, client: int) -> None:
        """Note that a message was sent."""
        until = time.monotonic() + LIFE * self._config.deadline
        self._out[message.metadata.message_id] = _PendingRequest(index, client, until)

    def take(self, answer: Answer, sink: Sink) -> bool:
        """Process an answer; whether it was an update that could be used."""
        if self._overdue.pop(answer.name, None) is not None:
            self._come_late(answer)
            return False
        request = self._out.pop(answer.name, None)
        if request is None:
            return False
        result = ClientResult.failed(answer.fault) if answer.message is None else read_answer(answer.message)
        if OTHER_CLIENT in result.failure:
            self.nodes.doubt(request.client)
        used = sink.result(request.index, result)
        (self._failures.succeeded if used else self._failures.failed)(request.client)
        return used

    def _come_late(self, answer: Answer) -> None:
        if answer.message is not None and not answer.message.has_error():
            self._late(size_of(answer.message))

    def call_time(self, *, in_time: bool) -> None:
        """End the round; clients that have not answered failed, unless there were enough answers `in_time`."""
        now = time.monotonic()
        self._overdue = {name: one for name, one in (self._overdue | self._out).items() if one.until > now}
        if not in_time:
            for request in self._out.values():
                self._failures.failed(request.client)
        self._out = {}

    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        return self._evaluate(tasks)
