"""The jobs of the CPU bench, and the networks that they are done with."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.clients import clients_in
from benchmarks.rivals.job import Client, Training
from feddst.core import ServerState, generator
from feddst.data import DataConfig, Federation, federate
from feddst.data.cifar import CIFAR10
from feddst.engines.select import EngineConfig
from feddst.models import ModelConfig, initial_model, make_module, network
from feddst.runtime.config import RunConfig, make_method
from feddst.runtime.configure import configure

JobName = Literal["mnist", "cifar10"]

TEST_IMAGES = 10_000
"""Made-up images to test on, as many as MNIST and CIFAR-10 have."""

CIFAR_IMAGES = 100
"""Made-up images of each client."""

_CIFAR_SHAPE = (3, 32, 32)
_ENDLESS = 10**9
INTERVAL = 10
"""ΔR of the paper: one round in so many readjusts masks."""


@dataclass(frozen=True)
class Case:
    """A sparsity S, and how it is spread over the layers; FedDST trains so, or FedAvgM where S is 0."""

    level: float
    distribution: Literal["erk", "uniform"] = "erk"

    def __str__(self) -> str:
        return f"S = {self.level:g}, {self.layers}" if self.level else "dense"

    @property
    def layers(self) -> str:
        """How S is spread over the layers, in a word."""
        return {"erk": "ERK", "uniform": "uniform"}[self.distribution] if self.level else ""


def cases(levels: Sequence[float]) -> list[Case]:
    """All cases at these sparsities: two of each, but one dense network."""
    return [
        *(Case(0.0) for level in levels if not level),
        *(Case(level, "erk") for level in levels if level),
        *(Case(level, "uniform") for level in levels if level),
    ]


@dataclass(frozen=True)
class CpuJob:
    """Rounds in which every client of a federation trains."""

    name: JobName
    federation: Federation
    module: nn.Sequential
    training: Training
    seed: int

    @cached_property
    def clients(self) -> list[Client]:
        """Every client's inputs and labels."""
        return clients_in(self.federation)

    @property
    def example(self) -> Tensor:
        """One input, [1, *shape]."""
        return self.clients[0][0][:1]

    @property
    def passes(self) -> int:
        """How often a network sees an image in a round."""
        return self.training.epochs * sum(len(labels) for _, labels in self.clients)

    def initial(self, case: Case) -> ServerState:
        """What a run begins with: initial weights under the masks of this case."""
        return make_method(self.config(case, EngineConfig())).init(initial_model(self.module), self.seed)

    def config(self, case: Case, engine: EngineConfig) -> RunConfig:
        """A run without end or evaluation; FedDST readjusts masks in one round of ten."""
        local, clients = self.training, self.federation.num_clients
        options: dict[str, Any] = {
            "seed": self.seed,
            "rounds": _ENDLESS,
            "eval_every": _ENDLESS,
            "data": {"clients": clients},
            "cohort": {"size": clients},
            "local": {
                "epochs": local.epochs,
                "batch": local.batch,
                "lr": local.lr,
                "momentum": local.momentum,
                "l2": local.weight_decay,
            },
            "engine": {"kind": engine.kind, "workers": engine.workers},
        }
        if not case.level:
            return configure(method="fedavgm", **options)
        return configure(
            method="feddst",
            sparsity={"level": case.level, "distribution": case.distribution},
            readjust={"every": INTERVAL, "until": _ENDLESS},
            **options,
        )


def make_job(name: JobName, clients: int, epochs: int, seed: int) -> CpuJob:
    """A job with so many clients; initial weights, partition and made-up images follow from the seed."""
    federation = federate(DataConfig(clients=clients), seed) if name == "mnist" else _made_up(clients, seed)
    dataset = federation.dataset
    built = ModelConfig(name="mnist-cnn" if name == "mnist" else "cifar10-cnn")
    module = make_module(lambda: network(built, dataset.input_shape, dataset.num_classes), seed)
    assert isinstance(module, nn.Sequential)
    return CpuJob(name, federation, module, Training(epochs=epochs), seed)


def readjusts(round: int) -> bool:
    """Whether masks are readjusted in this round, counted from 1."""
    return round % INTERVAL == 0


def _made_up(clients: int, seed: int) -> Federation:
    """Noise in CIFAR-10's form, with labels at random."""
    draws = generator(seed, "made-up images")
    return Federation.from_clients(
        train=[_noise(CIFAR_IMAGES, draws) for _ in range(clients)],
        test=_noise(TEST_IMAGES, draws),
        name="noise",
        classes=CIFAR10.classes,
        mean=CIFAR10.mean,
        std=CIFAR10.std,
    )


def _noise(images: int, draws: np.random.Generator) -> tuple[Tensor, Tensor]:
    pixels = draws.integers(0, 256, (images, *_CIFAR_SHAPE), dtype=np.uint8)
    return torch.from_numpy(pixels), torch.from_numpy(draws.integers(0, len(CIFAR10.classes), images))
