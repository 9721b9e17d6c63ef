"""Clients that answer without training: with what they were sent, a little changed, no two alike.

They are in a process of their own, so that neither their memory nor their time is the server's.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.scale.cases import IMAGES, Case
from feddst.clients.exchange import layout_of
from feddst.clients.steps import Readjust
from feddst.core import Masks, Update, generator, positions_of
from feddst.wire import BroadcastDecoder, ClientTask, Layout, encode_update

STEP = 0.01
"""The standard deviation of a change."""


def answer_questions(case: Case, pipe: Connection) -> None:
    """Take one task of a round, and answer lists of clients with their payloads, until no more are asked for."""
    torch.set_num_threads(1)
    clients = MadeUpClients(layout_of(case.module()), case.seed)
    with suppress(EOFError):
        while True:
            asked = pipe.recv()
            if isinstance(asked, ClientTask):
                clients.hear(asked)
            else:
                for client in asked:
                    pipe.send_bytes(clients.answer(client))


class MadeUpClients:
    """All clients of a federation; each of them receives every broadcast."""

    def __init__(self, layout: Layout, seed: int) -> None:
        self._layout = layout
        self._seed = seed
        self._held = b""

    def hear(self, task: ClientTask) -> None:
        """Receive a broadcast; this task stands for those of all clients."""
        self._sent = BroadcastDecoder(self._layout).read(task.message.payload, self._held)
        self._task = task.read_as(self._sent)
        self._held = self._sent.bitmap
        draws = generator(self._seed, "made-up changes", self._sent.broadcast.round)
        flat = {name: mask.numpy().reshape(-1) for name, mask in self._sent.broadcast.masks.items()}
        self._places = {
            name: (draws.permutation(np.flatnonzero(mask)), draws.permutation(np.flatnonzero(~mask)))
            for name, mask in flat.items()
        }
        most = max(value.numel() for value in self._sent.broadcast.params.values())
        self._noise = torch.from_numpy(draws.standard_normal(2 * most, dtype=np.float32)).mul_(STEP)

    def answer(self, client: int) -> bytes:
        """A client's payload."""
        return encode_update(self.update(client), replace(self._task, client=client))

    def update(self, client: int) -> Update:
        """The same before it is written."""
        sent, readjust = self._sent, self._task.plan.step(Readjust)
        draws = generator(self._seed, "a made-up update", sent.broadcast.round, client)
        masks = None if readjust is None else self._moved(readjust.drop, draws)
        before = sent.values_under(sent.positions if masks is None else positions_of(masks))
        params = {name: value + self._change(value, draws) for name, value in before.items()}
        return Update(client, sent.broadcast.round, IMAGES, params, dict(sent.broadcast.buffers), masks)

    def _change(self, value: Tensor, draws: np.random.Generator) -> Tensor:
        begin = int(draws.integers(len(self._noise) - value.numel() + 1))
        return self._noise[begin : begin + value.numel()].view(value.shape)

    def _moved(self, drop: Mapping[str, int], draws: np.random.Generator) -> Masks:
        """The masks with as many weights exchanged as a readjustment drops."""
        masks: dict[str, Tensor] = {}
        for name, mask in self._sent.broadcast.masks.items():
            active, inactive = self._places[name]
            count = min(drop[name], len(inactive))
            masks[name] = mask.clone(memory_format=torch.contiguous_format)
            flat = masks[name].view(-1).numpy()
            flat[_some(active, count, draws)] = False
            flat[_some(inactive, count, draws)] = True
        return masks


def _some(order: NDArray[np.int64], count: int, draws: np.random.Generator) -> NDArray[np.int64]:
    """So many of these, from a random place on, and round to the beginning."""
    begin = int(draws.integers(max(1, len(order))))
    return np.concatenate([order[begin : begin + count], order[: max(0, begin + count - len(order))]])
