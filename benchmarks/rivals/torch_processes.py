"""The fastest plain PyTorch found for this job on a CPU: a process with one thread for each core, channels last.

Tried, and no faster than what is here: SGD one tensor at a time or `foreach` instead of `fused`, flushing denormal
numbers to zero, keeping gradients allocated between steps, pooling in two passes, `torch.compile`.
"""

import copy
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.rivals.job import Client, Training, channels_last, fast_layout, train_client

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
"""Keeps glibc from giving the memory of every activation back to the system, to fault it in again a step later."""


class TorchProcesses:
    """Federated averaging with one resident module a process.

    Weights go through shared memory. A process takes the next client that none has taken, and adds the client's
    weights to a sum of its own; the parent adds up the sums. All tensors of `module` that are not whole numbers, its
    parameters and its buffers, are averaged.
    """

    def __init__(self, module: nn.Module, workers: int, training: Training | None = None) -> None:
        self.module = copy.deepcopy(module)
        self._clients: Sequence[Client] = ()
        self._rounds = 0
        context = multiprocessing.get_context("spawn")
        size = sum(tensor.numel() for tensor in _tensors(self.module))
        shared = context.RawArray("f", (workers + 1) * size)
        self._taken = context.Value("i")
        self._vectors = _vectors(shared, size)
        plain = pickle.dumps(self.module)  # as an argument, the module itself would be one memory for all processes
        self._pipes: list[Connection] = []
        self._processes = []
        with _environment(ALLOCATOR):
            for rank in range(1, workers + 1):
                mine, theirs = context.Pipe()
                arguments = (theirs, rank, plain, training or Training(), shared, self._taken)
                process = context.Process(target=_work, args=arguments, daemon=True)
                process.start()
                theirs.close()
                self._pipes.append(mine)
                self._processes.append(process)

    def __enter__(self) -> "TorchProcesses":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        for process in self._processes:
            process.terminate()
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.join()
            pipe.close()

    def round(self, clients: Sequence[Client]) -> float:
        """Train all clients from `module`'s weights, put the mean, by images, back into it, and return the seconds.

        What is timed begins with the weights in `module` and ends with the new ones there. The clients' images are
        with the processes before that: they are sent there, untimed, if `clients` is not the list of the last round.
        """
        if clients is not self._clients:
            self._clients = clients
            self._ask([(channels_last(inputs).numpy(), labels.numpy()) for inputs, labels in clients])
        began = time.perf_counter()
        _gather(self.module, self._vectors[0])
        self._taken.value = 0
        self._ask(self._rounds)
        mean = self._vectors[1:].sum(dim=0) / sum(len(labels) for _, labels in clients)
        _scatter(mean, self.module)
        self._rounds += 1
        return time.perf_counter() - began

    def _ask(self, message: Any) -> None:
        """Send a message to all processes and wait until they have done what it says."""
        for pipe in self._pipes:
            pipe.send(message)
        for pipe in self._pipes:
            try:
                answer = pipe.recv()
            except EOFError:
                raise RuntimeError("a PyTorch process has ended") from None
            if isinstance(answer, Exception):
                raise answer


def image_order(round: int, client: int) -> torch.Generator:
    """What a client's images are shuffled by in a round, counted from 0."""
    return torch.Generator().manual_seed(1_000_003 * round + client)


class _Worker:
    """One process's module and data. `taken` counts the clients of the round that have been taken."""

    def __init__(self, rank: int, module: nn.Module, training: Training, shared: Any, taken: Any) -> None:
        self._module = fast_layout(module)
        self._training = training
        self._taken = taken
        vectors = _vectors(shared, sum(tensor.numel() for tensor in _tensors(module)))
        self._received, self._sum = vectors[0], vectors[rank]
        self._trained = torch.empty_like(self._sum)
        self._clients: list[Client] = []

    def answer(self, message: Any) -> None:
        """Take in a new list of clients, or carry out the round of a number."""
        if isinstance(message, int):
            self._round(message)
        else:
            self._clients = [
                (channels_last(torch.from_numpy(inputs)), torch.from_numpy(labels)) for inputs, labels in message
            ]

    def _round(self, number: int) -> None:
        self._sum.zero_()
        while (client := self._next()) is not None:
            _scatter(self._received, self._module)
            train_client(self._module, self._clients[client], self._training, image_order(number, client))
            _gather(self._module, self._trained)
            self._sum.add_(self._trained, alpha=len(self._clients[client][1]))

    def _next(self) -> int | None:
        with self._taken.get_lock():
            client = self._taken.value
            self._taken.value += 1
        return client if client < len(self._clients) else None


def _work(pipe: Connection, rank: int, module: bytes, training: Training, shared: Any, taken: Any) -> None:
    """The life of a process: until the parent closes the pipe, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    worker = _Worker(rank, pickle.loads(module).train(), training, shared, taken)
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        try:
            worker.answer(message)
        except Exception as error:
            pipe.send(error)
        else:
            pipe.send(None)


def _tensors(module: nn.Module) -> list[Tensor]:
    """What is averaged."""
    return [value for value in (*module.parameters(), *module.buffers()) if value.is_floating_point()]


def _gather(module: nn.Module, vector: Tensor) -> None:
    for tensor, part in _parts(module, vector):
        part.copy_(tensor.detach())


def _scatter(vector: Tensor, module: nn.Module) -> None:
    with torch.no_grad():
        for tensor, part in _parts(module, vector):
            tensor.copy_(part)


def _parts(module: nn.Module, vector: Tensor) -> list[tuple[Tensor, Tensor]]:
    """A module's tensors, each with its place in a vector of them all."""
    tensors = _tensors(module)
    places = torch.split(vector, [tensor.numel() for tensor in tensors])
    return [(tensor, place.view(tensor.shape)) for tensor, place in zip(tensors, places, strict=True)]


def _vectors(shared: Any, size: int) -> Tensor:
    """Shared memory as float [1 + workers, size]: the weights sent out, then the sum of each process."""
    return torch.frombuffer(shared, dtype=torch.float32).view(-1, size)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for processes that start within this block; what the user has set stays."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
