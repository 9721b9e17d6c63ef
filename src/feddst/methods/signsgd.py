"""Stochastic-sign SGD (Jin et al. 2020): clients vote on the sign of every step, with one bit a weight.

No client trains. Each takes the gradient g of its loss over all its images at the weights it was sent, without L2
regularisation, and for each weight votes +1 with probability (b + g)/2b, else −1, where g is cut to −b … b: the vote's
expectation is g/b. The server steps along the majority, θ ← θ − η·sign(Σ votes), and not at all where there is a tie. A
plain sign would always step towards what most clients want, however little; chance lets a few large gradients outvote
many small ones. BatchNorm's statistics stay at their initial values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from feddst.clients.steps import Report
from feddst.core import Aggregator, ClientPlan, InitialModel, ServerState
from feddst.core.plan import STEPPING
from feddst.methods.base import Card, Method
from feddst.options import option


@dataclass(frozen=True)
class Votes:
    """How clients vote, and how far the server follows."""

    lr: float = option(0.003, "η: how far every weight moves in a round", above=0)
    bound: float = option(0.1, "b: gradients of this size or larger are voted on without chance", above=0)


@dataclass(frozen=True)
class SignSGD(Method):
    """One gradient and one step of fixed size a round; every client has one vote, however many its images."""

    name: ClassVar[str] = "sign-sgd"
    summary: ClassVar[str] = "clients vote on the sign of each weight's step, one bit a weight (Jin et al. 2020)"
    card: ClassVar[Card] = Card("Jin et al. 2020", "one vote a weight", cost="n")
    pins: ClassVar[Mapping[str, Any]] = {
        "wire.values": "sign",
        "wire.feedback": False,
        "local.weigh_by": "equal",
        "local.epochs": 1,
        "local.momentum": 0.0,
        "local.l2": 0.0,
    }

    sign: Votes = Votes()

    @classmethod
    def idle(cls, values: Mapping[str, Any]) -> Mapping[str, str]:
        return {f"local.{option}": "clients that take no steps" for option in STEPPING}

    def init(self, model: InitialModel, seed: int) -> ServerState:
        return ServerState(round=1, seed=seed, params=model.params, buffers=model.buffers)

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        return ClientPlan(self.local, (Report("sign", bound=self.sign.bound),), train=False)

    def aggregate(self, state: ServerState, total: Aggregator) -> ServerState:
        votes = total.mean("sign")
        stepped = {name: theta - self.sign.lr * torch.sign(votes[name]) for name, theta in state.params.items()}
        return state.next(params=stepped)
