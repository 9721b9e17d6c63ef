"""What the scale bench measures: rounds of one kind with so many clients, and how a server is made for them."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from benchmarks.wire.updates import SHAPES, NetworkName
from feddst.models import ModelConfig, make_module, network
from feddst.options import updated
from feddst.runtime.config import RunConfig

Kind = Literal["ordinary", "readjusting"]

IMAGES = 40
"""How many images each client says it has."""

NEVER = 10**6
"""A number of rounds after which something happens that is not to happen."""


@dataclass(frozen=True)
class Case:
    """Rounds of one kind: in a readjusting one every client sends a mask of its own."""

    network: NetworkName
    codec: str
    kind: Kind
    clients: int
    level: float
    seed: int
    rounds: int

    def __str__(self) -> str:
        return f"{self.network}, {self.codec}, {self.kind}, {self.clients:,} clients"

    def module(self) -> nn.Module:
        """The network, freshly drawn."""
        shape, classes = SHAPES[self.network]
        return make_module(lambda: network(ModelConfig(name=self.network), shape, classes), self.seed)

    def config(self) -> RunConfig:
        """FedDST with all clients in every round."""
        return updated(
            RunConfig(),
            {
                "seed": self.seed,
                "rounds": max(self.rounds, 2),
                "eval_every": NEVER,
                "data.clients": self.clients,
                "cohort.size": self.clients,
                "sparsity.level": self.level,
                "readjust.every": 1 if self.kind == "readjusting" else NEVER,
                "readjust.decay": "constant",
                "wire.values": self.codec,
            },
        )
