"""The reference engine: one client after another, in this process."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from feddst.data import Dataset
from feddst.engines.base import Assignment, Deliver, Evaluation, Exam, Reply
from feddst.engines.conditions import reproducible
from feddst.engines.exchange import Parcels, answer
from feddst.engines.torch_client import train_client
from feddst.models import load

CHUNK = 500
"""Test images per forward pass: fixed, so that no result depends on how chunks are shared out."""


class ReferenceEngine:
    """Carries out assignments in `module`, whose tensors it overwrites, on a CPU or a CUDA device."""

    def __init__(self, module: nn.Module, dataset: Dataset, device: torch.device) -> None:
        self._module = _laid_out(module.to(device))
        self._dataset = dataset
        self._device = device

    def train(self, assignments: Sequence[Assignment], deliver: Deliver) -> None:
        for index, assignment in enumerate(assignments):
            deliver(index, self.answer(assignment))

    def answer(self, assignment: Assignment) -> Reply:
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
            outputs = self._module(_fast_layout(self._dataset.inputs(images).to(self._device)))
            loss = F.cross_entropy(outputs, labels, reduction="sum")
        return (outputs.argmax(dim=1) == labels).cpu(), float(loss)

    def close(self) -> None:
        """Nothing to let go of."""

    def _placed(self, assignment: Assignment) -> Assignment:
        inputs = _fast_layout(assignment.inputs.to(self._device))
        return replace(assignment, inputs=inputs, labels=assignment.labels.to(self._device))


def joined(chunks: Sequence[tuple[Tensor, float]]) -> Evaluation:
    """One evaluation from its chunks, summed in their order."""
    correct = torch.cat([chunk for chunk, _ in chunks])
    return Evaluation(correct, sum(loss for _, loss in chunks) / len(correct))


def _fast_layout(inputs: Tensor) -> Tensor:
    """Channels last, the layout in which PyTorch's CPU convolutions and pools are fastest."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _laid_out(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        parameter.data = _fast_layout(parameter.data)
    return module
