"""A worker process: a reference engine behind a pair of pipes.

The parent writes requests to standard input and reads replies from standard output, each a pickle behind its
length; before the first request it writes how classes travel. Both ends are the same program on the same machine, and
nothing else can write to the pipes. The worker ends when the parent closes the pipe or ends.
"""

import os
import pickle
import signal
import struct
import sys
from dataclasses import dataclass
from typing import IO, Any

import torch
from torch import Tensor, nn

from feddst.core import LocalTraining
from feddst.core.registry import learn
from feddst.data import Dataset
from feddst.engines.base import EvalTask
from feddst.engines.pickling import Pickling, packed
from feddst.engines.reference import ReferenceEngine
from feddst.wire import ClientTask

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Setup:
    """The first request: what to work with. `known` are the objects that the parent's registries have."""

    module: nn.Module
    dataset: Dataset
    known: list[tuple[Any, ...]]
    local: LocalTraining


@dataclass(frozen=True)
class Load:
    """Remember a model for the next chunks."""

    task: EvalTask


@dataclass(frozen=True)
class Chunk:
    """Evaluate that model on the test images at these indices."""

    images: Tensor


Request = Setup | ClientTask | EvalTask | Load | Chunk


def send(pipe: IO[bytes], body: bytes) -> None:
    """Write one message, which is packed already."""
    pipe.write(_LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read one message; EOFError when the other end is gone."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    body = pipe.read(length)
    if len(body) < length:
        raise EOFError
    return pickle.loads(body)


class Worker:
    """Answers requests one by one."""

    def __init__(self, setup: Setup) -> None:
        learn(setup.known)
        self._engine = ReferenceEngine(setup.module, setup.dataset, torch.device("cpu"), setup.local)
        self._loaded = EvalTask({})

    def answer(self, request: Request) -> Any:
        if isinstance(request, ClientTask):
            return self._engine.answer(request)
        if isinstance(request, EvalTask):
            return self._engine.evaluate_one(request)
        if isinstance(request, Chunk):
            return self._engine.evaluate_chunk(self._loaded, request.images)
        if isinstance(request, Load):
            self._loaded = request.task
        return None


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        pickling: Pickling = receive(requests)
        worker = Worker(receive(requests))
        while True:
            request = receive(requests)
            try:
                reply = worker.answer(request)
            except Exception as error:
                reply = error
            send(replies, packed(reply, pickling))
    except (EOFError, BrokenPipeError):
        os._exit(0)
