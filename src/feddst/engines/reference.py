"""The reference engine: one client after another, in this process."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from feddst.clients.exchange import TaskReader, answer
from feddst.clients.reference import train_client
from feddst.clients.reproducible import reproducible
from feddst.core import OBJECTIVES, Examples, LocalTraining
from feddst.core.plan import USUAL
from feddst.data import Dataset
from feddst.engines.base import Engine, EvalTask, Evaluation, Sink
from feddst.models import load
from feddst.models.layout import lay_out, layout_for
from feddst.wire import ClientResult, ClientTask

CHUNK = 500
"""Test images per forward pass: fixed, so that results do not depend on who gets which chunk."""


class ReferenceEngine(Engine):
    """Carries out tasks in `module`, whose tensors it overwrites, on a CPU or a CUDA device."""

    def __init__(self, module: nn.Module, dataset: Dataset, device: torch.device, local: LocalTraining = USUAL) -> None:
        example = dataset.inputs(dataset.train_images[:1]).to(device)
        self._layout = layout_for(module.to(device), example)
        self._module = lay_out(module, self._layout)
        self._dataset = dataset
        self._place = device
        self._objective = OBJECTIVES[local.objective]

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        for index, task in enumerate(tasks):
            sink.result(index, self.answer(task))

    def answer(self, task: ClientTask) -> ClientResult:
        """Carry out one task."""
        with reproducible():
            placed = TaskReader(self._module).read(task, self._placed(task.data.load()))
            return answer(placed, partial(train_client, self._module))

    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        return [self.evaluate_one(task) for task in tasks]

    def evaluate_one(self, task: EvalTask) -> Evaluation:
        """Evaluate one model."""
        images = torch.arange(len(self._dataset.test_labels)) if task.images is None else task.images
        return joined([self.evaluate_chunk(task, chunk) for chunk in torch.split(images, CHUNK)])

    def evaluate_chunk(self, task: EvalTask, chunk: Tensor) -> tuple[Tensor, float]:
        """Which of the test images at these indices a model gets right, and the sum of their losses."""
        images = self._dataset.test_images[chunk]
        labels = self._dataset.test_labels[chunk].to(self._place)
        load(self._module, task.params, task.buffers)
        self._module.eval()
        with reproducible(), torch.no_grad():
            outputs = self._module(self._layout(self._dataset.inputs(images).to(self._place)))
            loss = self._objective.loss(outputs, labels, "sum")
        return self._objective.scores(outputs, labels).cpu(), float(loss)

    def _placed(self, examples: Examples) -> Examples:
        return Examples(self._layout(examples.inputs.to(self._place)), examples.labels.to(self._place))


def joined(chunks: Sequence[tuple[Tensor, float]]) -> Evaluation:
    """One evaluation from its chunks, summed in their order."""
    correct = torch.cat([chunk for chunk, _ in chunks])
    return Evaluation(correct, sum(loss for _, loss in chunks) / len(correct))
