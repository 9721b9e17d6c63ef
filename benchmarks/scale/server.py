"""A server and its rounds: where its time goes, and how much memory it needs."""

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from multiprocessing.connection import Connection

import torch
from flwr.app import Message
from flwr.clientapp import ClientApp

from benchmarks.scale.cases import IMAGES, Case
from benchmarks.scale.memory import forget_peak, peak, resident, tidy
from benchmarks.wire.updates import SHAPES
from feddst.clients.reproducible import reproducible
from feddst.data import RemoteFederation
from feddst.engines.base import Evaluation
from feddst.errors import TrainingError
from feddst.flower.config import FlowerConfig
from feddst.flower.engine import FlowerEngine
from feddst.flower.inprocess import InProcessGrid
from feddst.flower.messages import (
    HELLO,
    TRAIN,
    Introduction,
    answer_message,
    introduction_message,
    read_task_message,
)
from feddst.runtime.loop import SharedRound, Silent
from feddst.runtime.run import Run
from feddst.wire import ClientResult

WARMING = 3
"""Clients in the rounds that are played before anything is measured."""


@dataclass(frozen=True)
class Lap:
    """Seconds of a core that one round took the server.

    `opening`: who takes part, the broadcast, tasks. `sending`: messages. `fetching`: answers, as Flower's messages.
    `adding`: decoding, checking and adding up. `closing`: the new model, and the round's row. The clients' own are in
    none of these.
    """

    opening: float
    sending: float
    fetching: float
    adding: float
    closing: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.opening + self.sending + self.fetching + self.adding + self.closing


@dataclass(frozen=True)
class Measured:
    """What a case took. `up` and `down`: bytes of the last round's payloads; `dense`: bytes of the model in float32.

    `kept`: bytes of memory for the run between rounds; `peak`: the most in any round; both above what the process had
    when it had played such rounds with a few clients, and let go of them.
    """

    case: Case
    dense: int
    up: int
    down: int
    kept: int
    peak: int
    laps: tuple[Lap, ...]

    @property
    def lap(self) -> Lap:
        """The medians of the rounds' parts."""
        return Lap(*(statistics.median(getattr(lap, part.name) for lap in self.laps) for part in fields(Lap)))


class ClientsGrid(InProcessGrid):
    """Nodes whose answers come from another process, each made when it is asked for.

    In each round, `elsewhere` are this core's seconds of asking for answers, which are not the server's, and
    `pulled` is when it first asked.
    """

    def __init__(self, clients: int, pipe: Connection) -> None:
        super().__init__(ClientApp(), 0, courier=self._carry)
        self.clients = clients
        self._pipe = pipe
        self._told = False
        self.elsewhere = 0.0
        self.pulled: float | None = None

    def begin_round(self) -> None:
        """Expect a new broadcast in the next message, and the same one in all after it."""
        self._told, self.elsewhere, self.pulled = False, 0.0, None

    def get_node_ids(self) -> Iterable[int]:
        return range(1, self.clients + 1)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        began = time.thread_time()
        if self.pulled is None:
            self.pulled = began
        names = list(message_ids)
        self._ask([message for name in names if (message := self._waiting.get(name)) is not None])
        self.elsewhere += time.thread_time() - began
        return super().pull_messages(names)

    def _ask(self, messages: Sequence[Message]) -> None:
        """Have the answers to these messages made, in their order."""
        tasks = [message for message in messages if message.metadata.message_type == TRAIN]
        if tasks and not self._told:
            self._pipe.send(read_task_message(tasks[0])[1])
            self._told = True
        if tasks:
            self._pipe.send([message.metadata.dst_node_id - 1 for message in tasks])

    def _carry(self, message: Message, deliver: object) -> Message:
        if message.metadata.message_type == HELLO:
            return introduction_message(message, Introduction(message.metadata.dst_node_id - 1, IMAGES))
        began = time.thread_time()
        answer = self._pipe.recv_bytes()
        self.elsewhere += time.thread_time() - began
        return answer_message(message, ClientResult(answer, loss=1.0))


class Server:
    """A run on such a grid."""

    def __init__(self, case: Case, pipe: Connection) -> None:
        shape, classes = SHAPES[case.network]
        images: dict[int, int] = {}
        federation = RemoteFederation(torch.zeros(1, *shape), classes, case.clients, images)
        self.run = Run(case.config(), federation, case.module(), untrusted=True)
        self._grid = ClientsGrid(case.clients, pipe)
        self._engine = FlowerEngine(
            self._grid,
            FlowerConfig(),
            run="scale",
            clients=case.clients,
            images=images,
            evaluate=_nothing,
            late=self.run.receive_late,
            spare=0,
        )
        self._engine.nodes.gather(60.0)

    def round(self) -> Lap:
        """Play a round; raises if a client's update is missing."""
        grid = self._grid
        grid.begin_round()
        began = time.thread_time()
        step = _TimedStep([self.run])
        opened = time.thread_time()
        self._engine.run(step.tasks, step)
        trained = time.thread_time()
        step.close(self._engine, Silent())
        closed = time.thread_time()
        if (used := self.run.rows[-1].clients) != grid.clients:
            raise TrainingError(f"{used} of {grid.clients} made-up updates were used")
        pulled = trained if grid.pulled is None else grid.pulled
        fetching = trained - pulled - step.adding - grid.elsewhere
        return Lap(opened - began, pulled - opened, fetching, step.adding, closed - trained)


class _TimedStep(SharedRound):
    """A round that notes how many seconds of a core decoding, checking and adding up take."""

    adding = 0.0

    def result(self, index: int, result: ClientResult) -> bool:
        before = time.thread_time()
        used = super().result(index, result)
        self.adding += time.thread_time() - before
        return used


def measure_case(case: Case, pipe: Connection) -> Measured:
    """Play rounds like those of a case with a few clients, then the case itself; `pipe` leads to its clients."""
    torch.set_num_threads(1)
    with reproducible():
        few = Server(replace(case, clients=min(WARMING, case.clients)), pipe)
        few.round()
        few.round()
        del few
        tidy()
        before = resident()
        forget_peak()
        server = Server(case, pipe)
        laps = [server.round() for _ in range(case.rounds)]
        most = peak() - before
        rows = server.run.rows
        up, down = ([0, *(getattr(row, way) for row in rows)] for way in ("upload_bytes", "download_bytes"))
        tidy()
        kept = resident() - before
    state = server.run.state
    return Measured(
        case=case,
        dense=4 * sum(value.numel() for value in state.params.values()),
        up=up[-1] - up[-2],
        down=down[-1] - down[-2],
        kept=kept,
        peak=most,
        laps=tuple(laps),
    )


def _nothing(exams: object) -> list[Evaluation]:
    return []
