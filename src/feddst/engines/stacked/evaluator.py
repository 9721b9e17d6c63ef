"""Evaluation on a device that holds all test images."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from feddst.core import Objective
from feddst.core.batches import arguments
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
    """Evaluates models: with `together` by cross-entropy, on all test images at once; else one after another."""

    def __init__(
        self, module: nn.Module, dataset: Dataset, device: torch.device, objective: Objective, together: Scoring | None
    ) -> None:
        self._module = module
        self._objective = objective
        self._tests = on_device(dataset.test, device)
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
        inputs = self._tests.inputs
        assert isinstance(inputs, Tensor)
        for chunk in torch.split(torch.arange(len(self._tests), device=self._tests.device), CHUNK):
            targets = self._tests.at(chunk).targets
            for mine, outputs in zip(chunks, together.scores(tasks, inputs, chunk), strict=True):
                mine.append(marked(self._objective, outputs, targets))
        return [evaluation(mine) for mine in chunks]

    def _alone(self, task: EvalTask) -> Evaluation:
        device = self._tests.device
        tensors = {name: value.to(device) for name, value in {**task.params, **task.buffers}.items()}
        images = torch.arange(len(self._tests), device=device) if task.images is None else task.images.to(device)
        self._module.eval()
        with torch.no_grad():
            found = [self._chunk(tensors, chunk) for chunk in torch.split(images, CHUNK)]
        self._module.train()
        return evaluation(found)

    def _chunk(self, tensors: dict[str, Tensor], chunk: Tensor) -> Marked:
        seen = self._tests.at(chunk)
        outputs = functional_call(self._module, tensors, *arguments(seen.inputs))
        return marked(self._objective, outputs, seen.targets)
