"""Rounds in which nothing is done: every client returns the one number that it got.

The loops are Flower's `Strategy.start` with and without evaluation, and that of `feddst`.
Each round writes a line of JSON: the loop, its seconds, and the seconds from its start to each client's own.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

if TYPE_CHECKING:
    from feddst.flower.message_client import MessageClient

POLL = 0.1
DEADLINE = 120.0

server_app = ServerApp()
client_app = ClientApp()


@dataclass(frozen=True)
class Round:
    """Its seconds, and those from its start until each client began, where the loop shows the replies."""

    seconds: float
    clients: tuple[float, ...] = ()


@client_app.train()
@client_app.evaluate()
@client_app.query()
def nothing(message: Message, context: Context) -> Message:
    reply = RecordDict({"metrics": MetricRecord({"num-examples": 1, "began": time.time()})})
    if message.metadata.message_type == MessageType.TRAIN:
        reply["arrays"] = arrays()
    return Message(reply, reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    while len(list(grid.get_node_ids())) < int(config["nodes"]):
        time.sleep(POLL)
    for _ in range(int(config["turns"])):
        for name in str(config["loops"]).split(","):
            for one in LOOPS[name](grid, int(config["rounds"])):
                print(json.dumps({"noop": name, "seconds": one.seconds, "clients": one.clients}), flush=True)


def flower(grid: Grid, rounds: int, evaluate: float = 0.0) -> list[Round]:
    """Flower's own loop, timed by the server-side evaluation that it calls before the first round and after each."""
    times: list[float] = []

    def note(number: int, model: ArrayRecord) -> MetricRecord:
        times.append(time.time())
        return MetricRecord({})

    strategy = FedAvg(fraction_evaluate=evaluate, min_evaluate_nodes=2 if evaluate else 0)
    strategy.start(grid, arrays(), num_rounds=rounds, timeout=DEADLINE, evaluate_fn=note)
    return [Round(later - sooner) for sooner, later in itertools.pairwise(times)]


def flower_evaluate(grid: Grid, rounds: int) -> list[Round]:
    """The same with its default of a second exchange in every round, for evaluation."""
    return flower(grid, rounds, evaluate=1.0)


def own(grid: Grid, rounds: int) -> list[Round]:
    """Our loop: send, and fetch answers as they come."""
    from feddst.flower.message_client import MessageClient  # here: clients, which are timed too, do not need it

    messages = MessageClient(grid)
    return [own_round(grid, messages, number) for number in range(rounds)]


def own_round(grid: Grid, messages: "MessageClient", number: int) -> Round:
    began = time.time()
    content = RecordDict({"arrays": arrays(), "config": ConfigRecord({"round": number})})
    waiting = set(messages.send([Message(content, node, MessageType.TRAIN) for node in grid.get_node_ids()]))
    clients: list[float] = []
    while waiting and time.time() < began + DEADLINE:
        for answer in itertools.chain.from_iterable(messages.collect(waiting)):
            waiting.discard(answer.name)
            if answer.message is not None and answer.message.has_content():
                clients.append(cast(float, answer.message.content["metrics"]["began"]) - began)
        if waiting:
            messages.pause()
    return Round(time.time() - began, tuple(clients))


def arrays() -> ArrayRecord:
    return ArrayRecord({"nothing": Array(np.zeros(1, np.float32))})


LOOPS: dict[str, Callable[[Grid, int], Iterable[Round]]] = {
    "flower": flower,
    "flower-evaluate": flower_evaluate,
    "own": own,
}
