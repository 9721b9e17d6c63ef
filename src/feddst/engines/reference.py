"""The reference engine: one client after another, in this process."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from feddst.clients.exchange import Parcels, answer
from feddst.clients.reference import train_client
from feddst.clients.reproducible import reproducible
from feddst.clients.task import Assignment, Failure, Reply
from feddst.core import OBJECTIVES, LocalTraining
from feddst.core.plan import USUAL
from feddst.data import Dataset
from feddst.engines.base import Deliver, Evaluation, Exam
from feddst.models import load
from feddst.models.layout import lay_out, layout_for

CHUNK = 500
"""Test images per forward pass: fixed, so that no result depends on how chunks are shared out."""


class ReferenceEngine:
    """Carries out assignments in `module`, whose tensors it overwrites, on a CPU or a CUDA device."""

    def __init__(self, module: nn.Module, dataset: Dataset, device: torch.device, local: LocalTraining = USUAL) -> None:
        example = dataset.inputs(dataset.train_images[:1]).to(device)
        self._layout = layout_for(module.to(device), example)
        self._module = lay_out(module, self._layout)
        self._dataset = dataset
        self._device = device
        self._objective = OBJECTIVES[local.objective]

    def train(self, assignments: Sequence[Assignment], deliver: Deliver) -> None:
        for index, assignment in enumerate(assignments):
            deliver(index, self.answer(assignment))

    def answer(self, assignment: Assignment) -> Reply | Failure:
        """Carry out one assignment."""
        with reproducible():
            placed = self._placed(assignment)
            return answer(Parcels(self._module).open(placed), placed, partial(train_client, self._module))

    def evaluate(self, exams: Sequence[Exam]) -> list[Evaluation]:
        return [self.examine(exam) for exam in exams]

    def examine(self, exam: Exam) -> Evaluation:
        """One exam, from beginning to end."""
        images = torch.arange(len(self._dataset.test_labels)) if exam.images is None else exam.images
        return joined([self.evaluate_chunk(exam, chunk) for chunk in torch.split(images, CHUNK)])

    def evaluate_chunk(self, exam: Exam, chunk: Tensor) -> tuple[Tensor, float]:
        """Which of the test images at these indices a model gets right, and the sum of their losses."""
        images = self._dataset.test_images[chunk]
        labels = self._dataset.test_labels[chunk].to(self._device)
        load(self._module, exam.params, exam.buffers)
        self._module.eval()
        with reproducible(), torch.no_grad():
            outputs = self._module(self._layout(self._dataset.inputs(images).to(self._device)))
            loss = self._objective.loss(outputs, labels, "sum")
        return self._objective.scores(outputs, labels).cpu(), float(loss)

    def close(self) -> None:
        """Nothing to let go of."""

    def _placed(self, assignment: Assignment) -> Assignment:
        inputs = self._layout(assignment.inputs.to(self._device))
        return replace(assignment, inputs=inputs, labels=assignment.labels.to(self._device))


def joined(chunks: Sequence[tuple[Tensor, float]]) -> Evaluation:
    """One evaluation from its chunks, summed in their order."""
    correct = torch.cat([chunk for chunk, _ in chunks])
    return Evaluation(correct, sum(loss for _, loss in chunks) / len(correct))
