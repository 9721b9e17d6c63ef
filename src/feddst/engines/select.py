"""Which engine carries out a run."""

import copy
import logging
import os
from dataclasses import dataclass

import torch
from torch import nn

from feddst.data import Dataset
from feddst.engines.base import Engine
from feddst.engines.processes import ProcessEngine, can_travel
from feddst.engines.reference import ReferenceEngine
from feddst.errors import OptionError
from feddst.options import option

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineConfig:
    """Where clients are trained."""

    device: str = option("cpu", "cpu, cuda, or cuda:N")
    workers: int = option(0, "worker processes on a CPU, with identical results; 0: one for each core", at_least=0)

    def torch_device(self) -> torch.device:
        """The device, if this machine has it."""
        try:
            device = torch.device(self.device)
        except RuntimeError:
            device = None
        if device is None or device.type not in ("cpu", "cuda"):
            raise OptionError(f"engine.device must be cpu, cuda or cuda:N, got {self.device!r}")
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise OptionError(
                f"engine.device is {self.device!r}, but PyTorch sees {torch.cuda.device_count()} CUDA devices here"
            )
        return device


def make_engine(config: EngineConfig, module: nn.Module, dataset: Dataset) -> Engine:
    """The engine that `config` asks for; it works on a copy of `module`."""
    module = copy.deepcopy(module)
    device = config.torch_device()
    workers = config.workers or cores()
    if device.type == "cuda" or workers == 1:
        return ReferenceEngine(module, dataset, device)
    if not can_travel(module):
        log.warning(
            "the model or a codec cannot be rebuilt in worker processes (is its class in __main__?): using one process"
        )
        return ReferenceEngine(module, dataset, device)
    return ProcessEngine(module, dataset, workers)


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
