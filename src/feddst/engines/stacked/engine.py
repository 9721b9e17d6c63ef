"""The stacked engine: all clients of all runs side by side on one device."""

import copy
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import nn

from feddst.data import Dataset
from feddst.engines.base import Cohort, Evaluation, Exam, Tally
from feddst.engines.native.chain import read_chain
from feddst.engines.stacked.columns import Columns
from feddst.engines.stacked.evaluator import ExamRoom
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.model_stack import Trainer
from feddst.engines.stacked.partial import Tallies
from feddst.engines.stacked.slots import Images, alike, placed, seats_of
from feddst.engines.stacked.trainer import Classroom
from feddst.engines.stacked.vmapped import VmapTrainer
from feddst.errors import UnsupportedModelError

if TYPE_CHECKING:
    from feddst.engines.stacked.graphed import GraphTrainer

log = logging.getLogger(__name__)


class StackedEngine:
    """Trains the cohorts of many runs at once, and adds updates up where they are.

    `models` is how many are side by side at most; on a GPU matrix products have all of float32's bits if `exact`.
    Raises `UnsupportedModelError` for modules it cannot stack.
    """

    def __init__(self, module: nn.Module, dataset: Dataset, device: torch.device, models: int, *, exact: bool) -> None:
        for name, value in module.named_parameters():
            if value.dtype != torch.float32:
                raise UnsupportedModelError(f"{name} is {value.dtype}, models are stacked in torch.float32 only")
        module = module.to(device)
        self._device = device
        self._models = models
        self._tf32 = device.type == "cuda" and not exact
        self._flat = Flat({name: tuple(value.shape) for name, value in module.named_parameters()})
        self._columns = Columns(self._flat, device)
        images = Images(placed(dataset, dataset.train_images, device), dataset.train_labels.to(device))
        trainer: Trainer = VmapTrainer(module, self._flat, images)
        graphs = _graphs(module, self._flat, images, trainer, exact) if device.type == "cuda" else None
        self._classroom = Classroom(module, self._flat, images, graphs or trainer)
        self._exams = ExamRoom(module, dataset, device, graphs)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        if self._stream is not None:
            torch.cuda.synchronize(device)

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def tf32(self) -> bool:
        return self._tf32

    def at_work(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream) if self._stream is not None else nullcontext()

    def train_cohorts(self, cohorts: Sequence[Cohort]) -> list[Tally]:
        tallies = Tallies(cohorts, self._columns)
        for group in alike(seats_of(cohorts), self._models):
            tallies.take(self._classroom.train(group))
        return tallies.result()

    def evaluate(self, exams: Sequence[Exam]) -> list[Evaluation]:
        return self._exams.examine(exams)

    def close(self) -> None:
        """Nothing to let go of."""


def _graphs(module: nn.Module, flat: Flat, images: Images, fallback: Trainer, exact: bool) -> "GraphTrainer | None":
    """The fast path, where the module is a chain that the kernels know; else says why not."""
    try:
        from feddst.engines.stacked.graphed import GraphTrainer  # needs Triton, which is where CUDA is

        chain = read_chain(copy.deepcopy(module).cpu(), tuple(images.inputs.shape[1:]))
        frozen = [name for name, value in module.named_parameters() if not value.requires_grad]
        return GraphTrainer(chain, flat, images, exact=exact, fallback=fallback, frozen=frozen)
    except (UnsupportedModelError, ImportError) as reason:
        log.warning("training with torch.func instead of compiled kernels: %s", reason)
        return None
