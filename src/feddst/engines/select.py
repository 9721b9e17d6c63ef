"""Which engine carries out a run."""

import copy
import logging
import os
from abc import ABC, abstractmethod
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from feddst.core import LocalTraining, Registry, SparseSum, register
from feddst.core.plan import USUAL
from feddst.data import Dataset
from feddst.engines.base import Engine
from feddst.engines.native.chain import read_chain
from feddst.engines.native.known import refuse_unknown
from feddst.engines.native.library import why_missing
from feddst.engines.processes import ProcessEngine, can_travel
from feddst.engines.reference import ReferenceEngine
from feddst.engines.stacked.engine import StackedEngine
from feddst.engines.stacked.trainer import why_unlike
from feddst.errors import OptionError, UnsupportedModelError
from feddst.options import option

log = logging.getLogger(__name__)

_SAID_AT = ContextVar("said_at", default=logging.WARNING)
"""The log level for using another engine instead."""


class EngineKind(ABC):
    """A kind of engine: a value of `engine.kind`, and what makes one.

    One that `adds_up` updates where it trains can be used with the mean alone as an aggregator.
    """

    registry: "ClassVar[Registry[EngineKind]]"
    name: ClassVar[str]
    adds_up: ClassVar[bool] = False

    @abstractmethod
    def make(self, config: "EngineConfig", module: nn.Module, dataset: Dataset, local: LocalTraining) -> Engine:
        """An engine for a network (which it may overwrite), the data set it is evaluated on, and the training."""


ENGINES: Registry[EngineKind] = Registry("kind of engine", EngineKind)
"""What makes an engine, by the name a user types."""
EngineKind.registry = ENGINES


@dataclass(frozen=True)
class EngineConfig:
    """Where clients are trained."""

    kind: str = option(
        "native",
        "native: compiled sparse kernels, on a CPU and for chains of layers they know; reference: PyTorch; "
        "stacked: all clients side by side, for a GPU",
        among=ENGINES,
    )
    device: str = option("cpu", "cpu, cuda, or cuda:N")
    workers: int = option(0, "clients at once on a CPU, with identical results; 0: one for each core", at_least=0)
    models: int = option(400, "(stacked) models side by side at most", at_least=1)
    precision: Literal["tf32", "float32"] = option(
        "tf32", "(stacked, on a GPU) matrix products with 11 bits of precision, or with all of float32's"
    )

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


def make_engine(
    config: EngineConfig,
    module: nn.Module,
    dataset: Dataset,
    local: LocalTraining = USUAL,
    *,
    aggregator: str = SparseSum.name,
    said_at: int = logging.WARNING,
) -> Engine:
    """The engine that `config` asks for, if it can train `module`, else another one. It works on a copy of `module`.

    Using another engine is logged at the level `said_at`: once a run is enough, not for each client.
    """
    kind = ENGINES.named(config.kind, "engine.kind")
    if kind.adds_up and aggregator != SparseSum.name:
        why = "training one client after another: the %s engine adds updates up itself, and aggregator.kind is %s"
        log.log(said_at, why, kind.name, aggregator)
        kind = ENGINES[Reference.name]
    before = _SAID_AT.set(said_at)
    try:
        return kind.make(config, copy.deepcopy(module), dataset, local)
    finally:
        _SAID_AT.reset(before)


@register
class Native(EngineKind):
    """Compiled sparse kernels."""

    name = "native"

    def make(self, config: EngineConfig, module: nn.Module, dataset: Dataset, local: LocalTraining) -> Engine:
        if config.torch_device().type == "cpu":
            try:
                return _native_engine(module, dataset, config.workers or cores(), local)
            except UnsupportedModelError as reason:
                line = "training with PyTorch: %s. This is slower, and the result is of the same kind"
                log.log(_SAID_AT.get(), line, reason)
        return Reference().make(config, module, dataset, local)


@register
class Reference(EngineKind):
    """PyTorch, on all cores."""

    name = "reference"

    def make(self, config: EngineConfig, module: nn.Module, dataset: Dataset, local: LocalTraining) -> Engine:
        device, workers = config.torch_device(), config.workers or cores()
        if device.type == "cuda" or workers == 1:
            return ReferenceEngine(module, dataset, device, local)
        if not can_travel(module):
            log.warning(
                "the model or something registered cannot be rebuilt in worker processes, so one process trains all "
                "clients: put its class into a module of its own, or set engine.workers to 1 to be spared this line"
            )
            return ReferenceEngine(module, dataset, device, local)
        return ProcessEngine(module, dataset, workers, local)


@register
class Stacked(EngineKind):
    """All clients side by side."""

    name = "stacked"
    adds_up = True

    def make(self, config: EngineConfig, module: nn.Module, dataset: Dataset, local: LocalTraining) -> Engine:
        device, exact = config.torch_device(), config.precision == "float32"
        try:
            if reason := why_unlike(local):
                raise UnsupportedModelError(f"{reason}, which is not known side by side")
            return StackedEngine(module, dataset, device, config.models, exact=exact)
        except UnsupportedModelError as reason:
            log.warning("training one client after another: %s", reason)
        return Reference().make(config, module, dataset, local)


def _native_engine(module: nn.Module, dataset: Dataset, workers: int, local: LocalTraining) -> Engine:
    """The native engine; raises `UnsupportedModelError`, with the reason, where it cannot train the module."""
    if why_missing():
        raise UnsupportedModelError(why_missing())
    refuse_unknown(local)
    chain = read_chain(module, dataset.input_shape)
    from feddst.engines.native.engine import NativeEngine  # cannot be imported where there are no kernels

    try:
        return NativeEngine(module, chain, dataset, workers, local)
    except ValueError as reason:
        raise UnsupportedModelError(f"the kernels refuse this network: {reason}") from None


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
