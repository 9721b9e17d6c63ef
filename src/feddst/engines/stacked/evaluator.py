"""Evaluation on a device that holds all test images."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from feddst.core import Objective
from feddst.data import Dataset
from feddst.engines.base import EvalTask, Evaluation, Marked, evaluation, marked
from feddst.engines.stacked.slots import on_device

CHUNK = 2500
"""Test images in one forward pass."""


class Scoring(Protocol):
    """Many models' scores for the same images at once, for models without buffers."""

    def scores(self, models: Sequence[EvalTask], inputs: Tensor, images: Tensor) -> Tensor:
        """[models, images, classes]; images: int64, rows of inputs."""
        ...


class StackedEvaluator:
    """Evaluates models: together if possible, else one after another."""

    def __init__(
        self, module: nn.Module, dataset: Dataset, device: torch.device, objective: Objective, together: Scoring | None
    ) -> None:
        self._module = module
        self._objective = objective
        tests = on_device(dataset.test, device)
        self._inputs, self._labels = tests.inputs, tests.labels
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
        chunks: list[list[Marked]] = [[] for _ in tasks]
        for chunk in torch.split(torch.arange(len(self._labels), device=self._labels.device), CHUNK):
            for mine, outputs in zip(chunks, together.scores(tasks, self._inputs, chunk), strict=True):
                mine.append(marked(self._objective, outputs, self._labels[chunk]))
        return [evaluation(mine) for mine in chunks]

    def _alone(self, task: EvalTask) -> Evaluation:
        device = self._labels.device
        tensors = {name: value.to(device) for name, value in {**task.params, **task.buffers}.items()}
        images = torch.arange(len(self._labels), device=device) if task.images is None else task.images.to(device)
        self._module.eval()
        with torch.no_grad():
            found = [self._chunk(tensors, chunk) for chunk in torch.split(images, CHUNK)]
        self._module.train()
        return evaluation(found)

    def _chunk(self, tensors: dict[str, Tensor], chunk: Tensor) -> Marked:
        outputs = functional_call(self._module, tensors, (self._inputs[chunk],))
        return marked(self._objective, outputs, self._labels[chunk])
