"""The stacked engine: all clients of all runs side by side on one device."""

import copy
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import nn

from feddst.core import Examples, LocalTraining, objective_of
from feddst.core.batches import tensors_of
from feddst.core.plan import USUAL
from feddst.data import Dataset
from feddst.engines.base import Engine, EvalTask, Evaluation, Sink
from feddst.engines.native.chain import read_chain
from feddst.engines.stacked.columns import Columns
from feddst.engines.stacked.evaluator import StackedEvaluator
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.known import why_apart, why_without_kernels
from feddst.engines.stacked.model_stack import Trainer
from feddst.engines.stacked.partial import PartialSums
from feddst.engines.stacked.slots import alike, on_device
from feddst.engines.stacked.trainer import StackedTrainer
from feddst.engines.stacked.vmapped import VmapTrainer
from feddst.errors import UnsupportedModelError
from feddst.wire import ClientTask

if TYPE_CHECKING:
    from feddst.engines.stacked.graphed import GraphTrainer

log = logging.getLogger(__name__)


class StackedEngine(Engine):
    """Carries out the tasks of many runs at once, and adds updates up on the device.

    At most `models` are side by side; if `exact`, a GPU's matrix products have all of float32's bits.
    Raises `UnsupportedModelError` for modules it cannot stack.
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset,
        device: torch.device,
        models: int,
        local: LocalTraining = USUAL,
        *,
        exact: bool,
    ) -> None:
        if reason := why_apart(local):
            raise UnsupportedModelError(f"{reason}, which is not known side by side")
        for name, value in module.named_parameters():
            if value.dtype != torch.float32:
                raise UnsupportedModelError(f"{name} is {value.dtype}, models are stacked in torch.float32 only")
        module = module.to(device)
        self.device = device
        self.tf32 = device.type == "cuda" and not exact
        self._models = models
        self._flat = Flat({name: tuple(value.shape) for name, value in module.named_parameters()})
        self._columns = Columns(self._flat, device)
        images = on_device(dataset.train, device)
        trainer: Trainer = VmapTrainer(module, self._flat, images, local)
        graphs = _graphs(module, self._flat, images, trainer, exact, local) if device.type == "cuda" else None
        self._trainer = StackedTrainer(module, self._flat, images, graphs or trainer)
        self._evaluator = StackedEvaluator(module, dataset, device, objective_of(local), graphs)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        if self._stream is not None:
            torch.cuda.synchronize(device)

    def at_work(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream) if self._stream is not None else nullcontext()

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        sums = PartialSums(sink, self._columns)
        for group in alike(tasks, self._models):
            sums.take(self._trainer.train(group, [tasks[index] for index in group]))
        sums.hand_in()

    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        return self._evaluator.evaluate(tasks)


def _graphs(
    module: nn.Module, flat: Flat, images: Examples, fallback: Trainer, exact: bool, local: LocalTraining
) -> "GraphTrainer | None":
    """The fast path if the kernels know the training, and the module as a chain; else logs why not."""
    try:
        if reason := why_without_kernels(local):
            raise UnsupportedModelError(f"{reason}, which they do not know")
        from feddst.engines.stacked.graphed import GraphTrainer  # needs Triton, found only with CUDA

        chain = read_chain(copy.deepcopy(module).cpu(), tuple(tensors_of(images.inputs)[0].shape[1:]))
        frozen = [name for name, value in module.named_parameters() if not value.requires_grad]
        return GraphTrainer(chain, flat, images, exact=exact, fallback=fallback, frozen=frozen)
    except (UnsupportedModelError, ImportError) as reason:
        log.warning("training with torch.func instead of compiled kernels: %s", reason)
        return None
