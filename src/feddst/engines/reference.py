"""The reference engine: one client after another, in this process."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from feddst.clients.exchange import TaskReader, answer
from feddst.clients.reference import train_client
from feddst.clients.reproducible import reproducible
from feddst.core import Examples, LocalTraining, objective_of
from feddst.core.batches import call, mapped, placed
from feddst.core.plan import USUAL
from feddst.data import Dataset
from feddst.engines.base import Engine, EvalTask, Evaluation, Marked, Sink, evaluation, marked
from feddst.models import load
from feddst.models.layout import lay_out, layout_for
from feddst.wire import ClientResult, ClientTask

CHUNK = 500
"""Test images per forward pass: fixed, so that results do not depend on who gets which chunk."""


class ReferenceEngine(Engine):
    """Carries out tasks in `module`, whose tensors it overwrites, on a CPU or a CUDA device."""

    def __init__(self, module: nn.Module, dataset: Dataset, device: torch.device, local: LocalTraining = USUAL) -> None:
        example = placed(dataset.example(), device)
        self._layout = layout_for(module.to(device), example)
        self._module = lay_out(module, self._layout)
        self._dataset = dataset
        self._place = device
        self._objective = objective_of(local)

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        for index, task in enumerate(tasks):
            sink.result(index, self.answer(task))

    def answer(self, task: ClientTask) -> ClientResult:
        """Carry out one task."""
        with reproducible():
            read = TaskReader(self._module).read(task)
            whole = read.with_data(self._placed(read.data.load(read.draw)))
            return answer(whole, partial(train_client, self._module))

    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        return [self.evaluate_one(task) for task in tasks]

    def evaluate_one(self, task: EvalTask) -> Evaluation:
        """Evaluate one model."""
        images = torch.arange(len(self._dataset.test)) if task.images is None else task.images
        return evaluation([self.evaluate_chunk(task, chunk) for chunk in torch.split(images, CHUNK)])

    def evaluate_chunk(self, task: EvalTask, chunk: Tensor) -> Marked:
        """What a model gives for the test examples at these indices."""
        seen = self._placed(self._dataset.test.read(chunk.numpy()))
        load(self._module, task.params, task.buffers)
        self._module.eval()
        with reproducible(), torch.no_grad():
            return marked(self._objective, call(self._module, seen.inputs), seen.targets)

    def _placed(self, examples: Examples) -> Examples:
        there = examples.to(self._place)
        return Examples(mapped(self._layout, there.inputs), there.targets)
