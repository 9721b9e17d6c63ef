"""The engine whose clients are Flower nodes."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from flwr.app import Message
from flwr.serverapp import Grid

from feddst.clients.task import Assignment, Failure
from feddst.engines.base import Deliver, Evaluation, Exam
from feddst.flower.config import FlowerConfig
from feddst.flower.failures import Conduct
from feddst.flower.message_client import AT_ONCE, Answer, Post
from feddst.flower.messages import OTHER_CLIENT, read_reply, size_of, work_letter
from feddst.flower.nodes import Nodes
from feddst.flower.orders import Orders

LIFE = 2.0
"""How long a message lives, in deadlines: what comes late should still come, and be counted."""


@dataclass
class _Errand:
    """An assignment that is out: its index, its client, and when nobody need look for the answer any more."""

    index: int
    client: int
    until: float


class FlowerEngine:
    """Sends assignments to nodes, and delivers what comes back until there is enough or the time is over.

    `run` names the run, for what clients keep; `late` hears how many bytes came after their round; `evaluate` tests
    models on this machine; a round does not end with fewer than `least` answers while there may be more. `images` will
    say how many images each client has.
    """

    def __init__(
        self,
        grid: Grid,
        config: FlowerConfig,
        *,
        run: str,
        clients: int,
        images: dict[int, int],
        evaluate: Callable[[Sequence[Exam]], list[Evaluation]],
        late: Callable[[int], None],
        spare: int,
        least: int = 1,
    ) -> None:
        self._config = config
        self._run = run
        self._spare, self._least = spare, least
        self._post = Post(grid)
        self.nodes = Nodes(
            grid,
            self._post,
            clients,
            images,
            most_images=config.most_images,
            ttl=config.wait + LIFE * config.deadline,
        )
        self._conduct = Conduct(config.failures, config.rest)
        self._evaluate = evaluate
        self._late = late
        self._out: dict[str, _Errand] = {}
        self._overdue: dict[str, _Errand] = {}

    def train(self, assignments: Sequence[Assignment], deliver: Deliver) -> None:
        end = time.monotonic() + self._config.deadline
        enough = max(1, min(len(assignments), max(self._least, len(assignments) - self._spare)))
        self._await_anybody([one.client for one in assignments], end)
        self._hand_out(assignments, deliver)
        while self._out and enough and time.monotonic() < end:
            for answers in self._post.collect(list(self._overdue)):
                for answer in answers:
                    self.take(answer, deliver)
            for answers in self._post.collect(list(self._out)):
                for answer in answers:
                    if enough:
                        enough -= self.take(answer, deliver)
                    elif self._out.pop(answer.name, None) is not None:
                        self._come_late(answer)
                if not enough:
                    break
            else:
                self.nodes.look()
                self._post.pause()
        self.call_time(in_time=not enough)

    def _hand_out(self, assignments: Sequence[Assignment], deliver: Deliver) -> None:
        """Send the letters of a round, a few at a time: what is sent need not be kept."""
        composed = self.compose(assignments, deliver)
        while some := list(islice(composed, AT_ONCE)):
            for (index, letter), name in zip(some, self._post.send([letter for _, letter in some]), strict=True):
                if name:
                    self.expect(letter, index, assignments[index].client)
                else:
                    deliver(index, Failure("the message could not be sent", sent=False))

    def _await_anybody(self, clients: Sequence[int], end: float) -> None:
        """Wait until at least one of these clients is there."""
        self.nodes.look()
        while clients and all(self.nodes.of(client) is None for client in clients) and time.monotonic() < end:
            self._post.pause()
            self.nodes.look()

    def compose(self, assignments: Sequence[Assignment], deliver: Deliver) -> Iterator[tuple[int, Message]]:
        """The letters of a round, with their assignments' indices; a client that is not there, or rests, gets none."""
        self._conduct.next_round()
        self.nodes.look()
        there = [one.client for one in assignments if self.nodes.of(one.client) is not None]
        all_rest = all(map(self._conduct.rests, there))  # then nobody does: it was not their fault
        for index, one in enumerate(assignments):
            node = self.nodes.of(one.client)
            if node is None or (self._conduct.rests(one.client) and not all_rest):
                reason = "it rests after several failures" if node is not None else "no node serves it now"
                deliver(index, Failure(reason, sent=False))
                continue
            orders = Orders(self._run, one.client, one.seed, one.plan, one.wire)
            yield index, work_letter(node, one.parcel.payload, orders, LIFE * self._config.deadline)

    def expect(self, letter: Message, index: int, client: int) -> None:
        """A letter has been sent."""
        until = time.monotonic() + LIFE * self._config.deadline
        self._out[letter.metadata.message_id] = _Errand(index, client, until)

    def take(self, answer: Answer, deliver: Deliver) -> bool:
        """Deal with what came; whether it was an update that could be used."""
        if self._overdue.pop(answer.name, None) is not None:
            self._come_late(answer)
            return False
        errand = self._out.pop(answer.name, None)
        if errand is None:
            return False
        reply = Failure(answer.fault) if answer.message is None else read_reply(answer.message)
        if isinstance(reply, Failure) and OTHER_CLIENT in reply.reason:
            self.nodes.doubt(errand.client)
        used = deliver(errand.index, reply)
        (self._conduct.well if used else self._conduct.badly)(errand.client)
        return used

    def _come_late(self, answer: Answer) -> None:
        if answer.message is not None and not answer.message.has_error():
            self._late(size_of(answer.message))

    def call_time(self, *, in_time: bool) -> None:
        """The round is over; who has not answered failed, unless there were answers enough before."""
        now = time.monotonic()
        self._overdue = {name: errand for name, errand in (self._overdue | self._out).items() if errand.until > now}
        if not in_time:
            for errand in self._out.values():
                self._conduct.badly(errand.client)
        self._out = {}

    def evaluate(self, exams: Sequence[Exam]) -> list[Evaluation]:
        return self._evaluate(exams)

    def close(self) -> None:
        """Nothing to let go of: nodes belong to Flower."""
