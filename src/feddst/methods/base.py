"""What every method is: pure functions from state to state, and plans for clients."""

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
    clients to report them, and cannot be combined with top-k codecs; one that `reads_squares` cannot be combined with
    float16 either.
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
        """Whether a straggler's update after fewer epochs is averaged."""
        return False

    @property
    def reads_gradients(self) -> bool:
        """Whether clients are asked for gradients in some rounds."""
        return False

    @property
    def reads_squares(self) -> bool:
        """Whether clients are asked for squared gradients, which are too small for float16."""
        return False

    @classmethod
    def idle(cls, values: Mapping[str, Any]) -> Mapping[str, str]:
        """The method's options or groups that do nothing with these values, each with the reason."""
        return {}

    @abstractmethod
    def init(self, model: InitialModel, seed: int) -> ServerState:
        """The state before the first round; `round` 0 if clients must be asked something before round 1."""

    def broadcast(self, state: ServerState, client: int) -> Broadcast:
        """What a client of the round is sent: by default the same as all, except what their plans have them keep.

        Masks, and so the number of weights sent, may differ from client to client. The same tensors are encoded only
        once for all clients.
        """
        return Broadcast(state.round, state.params, state.buffers, state.masks)

    def cohort(self, state: ServerState, sampled: np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
        """The clients that take part, given those that the federation sampled for this round."""
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
