"""What every method is: pure functions from state to state, and orders for clients."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from feddst.core import (
    Aggregator,
    Broadcast,
    ClientPlan,
    ClientState,
    InitialModel,
    LocalTraining,
    Registry,
    ServerState,
    Tensors,
)


@dataclass(frozen=True)
class Card:
    """A method in a line of the table of methods.

    `up` and `down` say what travels, `cost` the upload of a client in a round in bits by formula, with n weights and
    biases, sparsity S and float32 values; `state` what a client keeps between rounds; `result` what comes out.
    """

    paper: str
    up: str = "all weights"
    down: str = "all weights"
    cost: str = "32n"
    state: str = "nothing"
    result: str = "one model"


@dataclass(frozen=True)
class Method(ABC):
    """A federated learning method.

    The fields of a method are groups of options (`local`, `sparsity`, `readjust`, …), shared by name with
    every other method that has them. `pins` are options that a method fixes by definition. A method whose
    plans have clients keep something between rounds must say that it `keeps_state`. One that `reads_gradients` asks
    clients to report them, and must not get the largest alone: codecs that carry changes so are refused, and float16
    to one that `reads_squares`.
    """

    registry: "ClassVar[Registry[type[Method]]]"
    name: ClassVar[str]
    summary: ClassVar[str]
    card: ClassVar[Card]
    pins: ClassVar[Mapping[str, Any]] = {}
    keeps_state: ClassVar[bool] = False

    local: LocalTraining = LocalTraining()

    @property
    def accepts_partial(self) -> bool:
        """Whether what a straggler has after fewer epochs is averaged."""
        return False

    @property
    def reads_gradients(self) -> bool:
        """Whether clients are asked for gradients in some rounds."""
        return False

    @property
    def reads_squares(self) -> bool:
        """Whether they are asked for squared gradients, which are too small for float16."""
        return False

    @classmethod
    def idle(cls, values: Mapping[str, Any]) -> Mapping[str, str]:
        """Options of its own, or groups, that do nothing with these values of options, each with what makes it so."""
        return {}

    @abstractmethod
    def init(self, model: InitialModel, seed: int) -> ServerState:
        """The state before the first round; `round` 0 if clients must be asked something before round 1."""

    def broadcast(self, state: ServerState, client: int) -> Broadcast:
        """What goes down to a client of the round: as a rule the same to all, but for what their plans have them keep.

        Its masks, and so how many weights it is sent, may differ from client to client. Clients that are sent the very
        same tensors share the work of writing them.
        """
        return Broadcast(state.round, state.params, state.buffers, state.masks)

    def cohort(self, state: ServerState, sampled: np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
        """Who takes part, given the clients that the federation sampled for this round."""
        return [int(client) for client in sampled]

    @abstractmethod
    def plan(self, state: ServerState, client: int) -> ClientPlan:
        """What this client is asked to do in this round."""

    def personal(self, state: ServerState, kept: ClientState) -> Tensors | None:
        """The parameters of a client's own model, from what it keeps; None if all clients share one model."""
        return None

    @abstractmethod
    def aggregate(self, state: ServerState, total: Aggregator) -> ServerState:
        """The state for the next round, from the sum of this round's updates."""

    def check(self) -> None:
        """Raise `OptionError` where options contradict each other."""
