"""The reference engine on several cores: clients shared out to worker processes, with identical results."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import nn

from feddst.core import LocalTraining
from feddst.core.batches import mapped
from feddst.core.plan import USUAL
from feddst.core.registry import known_here
from feddst.data import Dataset, StoredRecords
from feddst.engines.base import Engine, EvalTask, Evaluation, Sink, evaluation
from feddst.engines.reference import CHUNK
from feddst.engines.worker import Chunk, Load, Request, Setup, receive, send
from feddst.errors import TrainingError
from feddst.wire import ClientTask


class ProcessEngine(Engine):
    """Hands each task to the next idle worker. `close` ends the workers; so does the end of this process."""

    def __init__(self, module: nn.Module, dataset: Dataset, workers: int, local: LocalTraining = USUAL) -> None:
        self._chunks = torch.split(torch.arange(len(dataset.test)), CHUNK)
        self._workers = [_start() for _ in range(workers)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="feddst-worker")
        for worker in self._workers:
            assert worker.stdin is not None
            send(worker.stdin, Setup(module, _test_part(dataset), known_here(), local))
            self._idle.put(worker)

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        futures = {self._threads.submit(self._carry_out, task): index for index, task in enumerate(tasks)}
        try:
            for future in as_completed(list(futures)):
                sink.result(futures.pop(future), future.result())  # popped, so that no update outlives its turn
        finally:
            for future in futures:
                future.cancel()

    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        """An evaluation on all images is split into chunks; any other goes to one worker."""
        wholes = {i: self._whole(task) for i, task in enumerate(tasks) if task.images is None}
        parts = {i: self._threads.submit(self._ask, task) for i, task in enumerate(tasks) if task.images is not None}
        return [wholes[i] if i in wholes else parts[i].result() for i in range(len(tasks))]

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.communicate()

    def _carry_out(self, task: ClientTask) -> Any:
        return self._ask(task.with_data(task.data.load(task.draw)))

    def _whole(self, task: EvalTask) -> Evaluation:
        for worker in self._workers:
            _exchange(worker, Load(task))
        chunks: Iterable[Any] = self._threads.map(self._ask, map(Chunk, self._chunks))
        return evaluation(list(chunks))

    def _ask(self, request: Request) -> Any:
        worker = self._idle.get()
        try:
            return _exchange(worker, request)
        finally:
            self._idle.put(worker)


def can_travel(*things: object) -> bool:
    """Whether a new process can rebuild a module, and our codecs; not if the user's script defines them."""
    try:
        return b"__main__" not in pickle.dumps((*things, known_here()))
    except Exception:
        return False


def _test_part(dataset: Dataset) -> Dataset:
    """The data that workers need: training images come with each task."""
    first = dataset.train.read(np.arange(1))
    train = StoredRecords(mapped(torch.clone, first.inputs), mapped(torch.clone, first.targets))
    return replace(dataset, train=train, owners=None, versions=1)


def _start() -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-c", "from feddst.engines.worker import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the parent alone, also while a worker starts
    )


def _exchange(worker: "subprocess.Popen[bytes]", request: Request) -> Any:
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        send(worker.stdin, request)
        reply = receive(worker.stdout)
    except (EOFError, OSError):
        code = worker.wait()
        why = " (out of memory?)" if code == -signal.SIGKILL else ""
        raise TrainingError(f"a worker process ended unexpectedly with code {code}{why}") from None
    if isinstance(reply, Exception):
        raise reply
    return reply
