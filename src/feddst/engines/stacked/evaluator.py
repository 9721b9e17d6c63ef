"""Evaluation on a device that holds all test images."""

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from feddst.core import Objective
from feddst.data import Dataset
from feddst.engines.base import EvalTask, Evaluation
from feddst.engines.stacked.slots import placed

CHUNK = 2500
"""Test images in one forward pass."""


class Scoring(Protocol):
    """Many models' scores for the same images at once, for models without buffers."""

    def scores(self, models: Sequence[EvalTask], inputs: Tensor, images: Tensor) -> Tensor:
        """[models, images, classes]; images: int64, rows of inputs."""
        ...


class StackedEvaluator:
    """Evaluates models: with `together` by cross-entropy, on all test images at once; else one after another."""

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset,
        device: torch.device,
        together: Scoring | None,
        objective: Objective,
    ) -> None:
        self._module = module
        self._objective = objective
        self._inputs = placed(dataset, dataset.test_images, device)
        self._labels = dataset.test_labels.to(device)
        self._together = together

    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        """All tasks."""
        whole = [task for task in tasks if task.images is None]
        if self._together is None or not whole:
            return [self._alone(task) for task in tasks]
        found = iter(self._all(self._together, whole))
        return [next(found) if task.images is None else self._alone(task) for task in tasks]

    def _all(self, together: Scoring, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        """Models on all test images."""
        right: list[Tensor] = []
        losses = torch.zeros(len(tasks), device=self._labels.device)
        for chunk in torch.split(torch.arange(len(self._labels), device=self._labels.device), CHUNK):
            scores = together.scores(tasks, self._inputs, chunk)
            labels = self._labels[chunk].expand(len(tasks), -1)
            right.append(scores.argmax(dim=2) == labels)
            losses += F.cross_entropy(scores.transpose(1, 2), labels, reduction="none").sum(1)
        correct, total = torch.cat(right, dim=1).cpu(), losses.tolist()
        return [Evaluation(mine, loss / len(mine)) for mine, loss in zip(correct, total, strict=True)]

    def _alone(self, task: EvalTask) -> Evaluation:
        device = self._labels.device
        tensors = {name: value.to(device) for name, value in {**task.params, **task.buffers}.items()}
        images = torch.arange(len(self._labels), device=device) if task.images is None else task.images.to(device)
        self._module.eval()
        with torch.no_grad():
            found = [self._chunk(tensors, chunk) for chunk in torch.split(images, CHUNK)]
        self._module.train()
        correct = torch.cat([right for right, _ in found]).cpu()
        return Evaluation(correct, float(torch.stack([loss for _, loss in found]).sum()) / len(correct))

    def _chunk(self, tensors: dict[str, Tensor], chunk: Tensor) -> tuple[Tensor, Tensor]:
        outputs = functional_call(self._module, tensors, (self._inputs[chunk],))
        labels = self._labels[chunk]
        return self._objective.scores(outputs, labels), self._objective.loss(outputs, labels, "sum")
