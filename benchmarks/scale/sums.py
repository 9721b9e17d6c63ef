"""One update at a time: decoding it, adding it, and sums of parts of a round, which a tree of servers would merge."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TypeVar

import torch

from benchmarks.scale.cases import Case
from benchmarks.scale.core_time import core_time
from benchmarks.scale.flower import FlowerCosts, flower_costs
from benchmarks.scale.server import Server
from feddst.clients.reproducible import reproducible
from feddst.core import Examples, Masks, SparseSum, Tensors, Update
from feddst.errors import TrainingError
from feddst.flower.messages import answer_message, task_message
from feddst.wire import ClientResult, ClientTask, decode_update

T = TypeVar("T")
S = TypeVar("S")

LEAVES = 4
"""Parts that the updates are added up in, beside all of them in one sum."""

FIXED_POINT, WITH_WEIGHTS = 16, 24
"""Bytes of a partial sum for each value: a coarse and a fine part, and its own sum of weights where masks differ."""


@dataclass(frozen=True)
class SumRow:
    """Medians, in seconds of a core, over the updates of a case's clients.

    `payload`: bytes of an update; `partial`: bytes of a sum of updates, however many they are; `merge`: adding one such
    sum to another.
    """

    case: Case
    payload: int
    partial: int
    decode: float
    add: float
    merge: float
    flower: FlowerCosts


def measure_sums(case: Case, pipe: Connection) -> SumRow:
    """Decode and add the answers of a case's clients; raises if sums of parts do not merge to the same bits."""
    torch.set_num_threads(1)
    with reproducible():
        server = Server(case, pipe)
        tasks = server.run.open_round()
        first, reference = tasks[0], tasks[0].sent
        pipe.send(replace(first, data=Examples()))
        pipe.send([task.client for task in tasks])
        payloads = [pipe.recv_bytes() for _ in tasks]
        masks = reference.broadcast.masks

        def decode(number: int) -> Update:
            return decode_update(payloads[number], tasks[number])

        whole = SparseSum(masks, reference.positions)
        decoding, updates = _each(decode, range(len(payloads)))
        adding, _ = _each(whole.add, updates)
        merged = merged_sum(masks, updates, LEAVES)
        if not same(whole.mean(), merged.mean()):
            raise TrainingError(f"{case}: sums of parts do not merge to the sum of all")
        half = merged_sum(masks, updates[::2], 1)
        return SumRow(
            case,
            payload=max(map(len, payloads)),
            partial=partial_bytes(updates[0], reference.broadcast.params),
            decode=decoding,
            add=adding,
            merge=core_time(lambda: merged.merge(half)),
            flower=_flower(first, payloads[0]),
        )


def merged_sum(masks: Masks, updates: Sequence[Update], leaves: int) -> SparseSum:
    """The sum of updates by way of so many partial sums."""
    root = SparseSum(masks)
    for number in range(leaves):
        leaf = SparseSum(masks)
        for update in updates[number::leaves]:
            leaf.add(update)
        root.merge(leaf)
    return root


def partial_bytes(update: Update, params: Tensors) -> int:
    """The bytes of a sum of updates like this one to a model of these parameters, as its numbers lie in memory.

    With the broadcast's masks it has the values that an update has; with masks of the clients' own, all of the model's.
    """
    if update.masks is None:
        return FIXED_POINT * sum(value.numel() for value in update.params.values())
    return WITH_WEIGHTS * sum(value.numel() for value in params.values())


def same(one: Tensors, other: Tensors) -> bool:
    """Whether tensors have the same bits."""
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def _flower(first: ClientTask, payload: bytes) -> FlowerCosts:
    message = task_message(1, "scale", first, 60.0)
    message.metadata.__dict__["_message_id"] = "message"
    return flower_costs(message, answer_message(message, ClientResult(payload, loss=1.0)))


def _each(action: Callable[[T], S], things: Sequence[T]) -> tuple[float, list[S]]:
    seconds: list[float] = []
    found: list[S] = []
    for thing in things:
        began = time.thread_time()
        found.append(action(thing))
        seconds.append(time.thread_time() - began)
    return statistics.median(seconds), found
