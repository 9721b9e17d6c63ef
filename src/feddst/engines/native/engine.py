"""The native engine: several clients at once, each in a thread of its own, with the same result for any number."""

import copy
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from feddst import _native
from feddst.data import Dataset
from feddst.engines.base import Assignment, Evaluation, Exam, Reply
from feddst.engines.exchange import answer, open_parcel
from feddst.engines.native.chain import Chain
from feddst.engines.native.client import Structures, Workbench, train_client
from feddst.engines.native.library import chosen_isa
from feddst.engines.reference import CHUNK, joined
from feddst.wire import Reference


class NativeEngine:
    """Trains and tests the module that `chain` was read from; keeps to itself what it changes."""

    def __init__(self, module: nn.Module, chain: Chain, dataset: Dataset, workers: int) -> None:
        self._module = module
        self._chain = chain
        self._dataset = dataset
        self._isa = chosen_isa()
        self._network = _native.Network(chain.shape, chain.layers)
        self._structures = Structures(chain, self._network)
        self._own = threading.local()
        self._sessions: list[_native.Session] = []
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="feddst-native", initializer=self._settle_in)

    def train(self, assignments: Sequence[Assignment]) -> Iterator[tuple[int, Reply]]:
        parcels = _Parcels(self._module)
        futures = {self._threads.submit(self._answer, parcels, one): i for i, one in enumerate(assignments)}
        yield from _as_they_come(futures)

    def evaluate(self, exams: Sequence[Exam]) -> list[Evaluation]:
        pending = [self._begin(exam) for exam in exams]
        return [joined([chunk.result() for chunk in chunks]) for chunks in pending]

    def close(self) -> None:
        for session in self._sessions:
            session.stop()
        self._threads.shutdown(cancel_futures=True)

    def _settle_in(self) -> None:
        torch.set_num_threads(1)
        session = _native.Session(self._network, self._isa)
        self._sessions.append(session)
        self._own.bench = Workbench(self._chain, self._structures, session, copy.deepcopy(self._module))

    def _answer(self, parcels: "_Parcels", assignment: Assignment) -> Reply:
        placed = replace(
            assignment,
            inputs=assignment.inputs.to(torch.float32).contiguous(),
            labels=assignment.labels.contiguous(),
        )
        return answer(parcels.open(assignment), placed, partial(train_client, self._own.bench))

    def _begin(self, exam: Exam) -> list["Future[tuple[Tensor, float]]"]:
        """Hand out an exam in chunks."""
        masks = {name: exam.params[name] != 0 for name in self._chain.weights}
        structure = self._structures.of(masks)
        images = torch.arange(len(self._dataset.test_labels)) if exam.images is None else exam.images
        return [self._threads.submit(self._mark, exam, structure, chunk) for chunk in torch.split(images, CHUNK)]

    def _mark(self, exam: Exam, structure: _native.Structure, chunk: Tensor) -> tuple[Tensor, float]:
        """Which of the test images at these indices a model gets right, and the sum of their losses."""
        bench: Workbench = self._own.bench
        bench.session.load(structure, *bench.arrays(exam.params))
        inputs = self._dataset.inputs(self._dataset.test_images[chunk]).contiguous()
        outputs = np.empty((len(chunk), self._network.outputs), dtype=np.float32)
        bench.session.scores(inputs.numpy(), outputs)
        scores, labels = torch.from_numpy(outputs), self._dataset.test_labels[chunk]
        return scores.argmax(dim=1) == labels, float(F.cross_entropy(scores, labels, reduction="sum"))


class _Parcels:
    """Opens each parcel of a round once, however many clients it went to."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._opened: dict[object, Reference] = {}

    def open(self, assignment: Assignment) -> Reference:
        parcel = assignment.parcel
        key = (parcel.payload, id(parcel.held), assignment.work.keep)
        with self._lock:
            if key not in self._opened:
                self._opened[key] = open_parcel(self._module, assignment)
            return self._opened[key]


def _as_they_come(futures: "dict[Future[Reply], int]") -> Iterator[tuple[int, Reply]]:
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()
