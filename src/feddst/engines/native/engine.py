"""The native engine: several clients at once, one thread each; the result is the same for any number."""

import copy
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from feddst import _native
from feddst.clients.exchange import TaskReader, answer
from feddst.clients.reproducible import reproducible
from feddst.core import Examples, LocalTraining, objective_of
from feddst.core.plan import USUAL
from feddst.data import Dataset
from feddst.data.records import undisturbed
from feddst.engines.base import Engine, EvalTask, Evaluation, Marked, Sink, evaluation, marked
from feddst.engines.native.chain import Chain
from feddst.engines.native.client import Workbench, train_client
from feddst.engines.native.known import Detour, why_unknown
from feddst.engines.native.library import chosen_isa
from feddst.engines.native.team import Task, Team
from feddst.engines.native.weights import Beginnings
from feddst.engines.reference import CHUNK
from feddst.wire import ClientResult, ClientTask


class NativeEngine(Engine):
    """Trains and evaluates the module that `chain` was read from, without changing that module."""

    def __init__(
        self, module: nn.Module, chain: Chain, dataset: Dataset, workers: int, local: LocalTraining = USUAL
    ) -> None:
        self._module = module
        self._chain = chain
        self._dataset = dataset
        self._objective = objective_of(local)
        self._isa = chosen_isa()
        self._network = _native.Network(chain.shape, chain.layers)
        self._beginnings = Beginnings(chain, self._network)
        self._own = threading.local()
        self._sessions: list[_native.Session] = []
        self._team = Team(workers)
        self._detour = Detour("training with PyTorch where %s, which the kernels do not know; this is slower")

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        self._detour.say(why_unknown(task.plan) for task in tasks)
        reader = TaskReader(self._module)
        with reproducible():
            self._team.share([partial(self._answer, reader, task) for task in tasks], sink.result)

    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        handed_out = [self._chunks(task) for task in tasks]
        marks: dict[int, Marked] = {}
        with reproducible():
            self._team.share([chunk for chunks in handed_out for chunk in chunks], marks.__setitem__)
        in_order = iter([marks[i] for i in range(len(marks))])
        return [evaluation([next(in_order) for _ in chunks]) for chunks in handed_out]

    def close(self) -> None:
        for session in self._sessions:
            session.stop()
        self._team.close()

    def _bench(self) -> Workbench:
        """This thread's bench."""
        if not hasattr(self._own, "bench"):
            session = _native.Session(self._network, self._isa)
            self._sessions.append(session)
            module = copy.deepcopy(self._module)
            self._own.bench = Workbench(self._chain, self._beginnings, session, module)
        bench: Workbench = self._own.bench
        return bench

    def _answer(self, reader: TaskReader, task: ClientTask) -> ClientResult:
        read = reader.read(task)
        inputs, targets = read.data.load(read.draw).pair
        examples = Examples(inputs.to(torch.float32).contiguous(), targets.contiguous())
        # PyTorch seeds the process's generator, with which other threads may be reading data.
        seeds = bool(why_unknown(task.plan)) and not self._dataset.train.fixed
        with undisturbed() if seeds else nullcontext():
            return answer(read.with_data(examples), partial(train_client, self._bench()))

    def _chunks(self, task: EvalTask) -> list[Task[Marked]]:
        """The parts of a task."""
        masks = {name: task.params[name] != 0 for name in self._chain.weights}
        weights = self._beginnings.weights(self._beginnings.structure(masks), task.params)
        images = torch.arange(len(self._dataset.test)) if task.images is None else task.images
        return [partial(self._mark, weights, chunk) for chunk in torch.split(images, CHUNK)]

    def _mark(self, weights: _native.Weights, chunk: Tensor) -> Marked:
        """What a model gives for the test examples at these indices."""
        session = self._bench().session
        session.load(weights)
        inputs, targets = self._dataset.test.read(chunk.numpy()).pair
        inputs = inputs.contiguous()
        outputs = np.empty((len(chunk), self._network.outputs), dtype=np.float32)
        session.scores(inputs.numpy(), outputs)
        return marked(self._objective, torch.from_numpy(outputs), targets)
