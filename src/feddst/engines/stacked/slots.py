"""Clients side by side: who sits where, and what they learn from."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from feddst.core import Broadcast, ClientPlan, ClientState, Tensors
from feddst.core.minibatches import Indices, cuts, orders
from feddst.data import Dataset
from feddst.engines.base import Cohort

PIECE = 5000
"""Images that are brought to a device together."""


@dataclass(frozen=True)
class Images:
    """All training images, on the engine's device. inputs: float32 [N, *shape]; labels: int64 [N]."""

    inputs: Tensor
    labels: Tensor


def placed(dataset: Dataset, images: Tensor, device: torch.device) -> Tensor:
    """Inputs for a network on a device, from images such as are stored in a data set, which are many.

    They become what they are on the CPU, whose divisions have other last bits than a GPU's, and some at a time.
    """
    if device.type == "cpu":
        return dataset.inputs(images)
    first = dataset.inputs(images[:1])
    inputs = torch.empty(len(images), *first.shape[1:], dtype=first.dtype, device=device)
    for some, piece in zip(torch.split(inputs, PIECE), torch.split(images, PIECE), strict=True):
        some.copy_(dataset.inputs(piece))
    return inputs


@dataclass(frozen=True)
class Seat:
    """One client's work in one round of one run.

    `images` are rows of `Images`; `cohort` says of which cohort it is a member, and `place` where among its members.
    """

    client: int
    seed: int
    broadcast: Broadcast
    plan: ClientPlan
    images: Indices
    cohort: int
    place: int
    state: ClientState = field(default_factory=ClientState)
    initial: Tensors = field(default_factory=dict)

    @property
    def draw(self) -> tuple[int, int, int]:
        """What its random draws are keyed by: seed, round, client."""
        return self.seed, self.broadcast.round, self.client

    def sequence(self) -> Indices:
        """The images in the order in which each epoch sees them, [epochs, images]."""
        return self.images[orders(len(self.images), self.plan.local, *self.draw)]


def seats_of(cohorts: Sequence[Cohort]) -> list[Seat]:
    """Everybody who has work."""
    return [
        Seat(
            client=member.client,
            seed=cohort.seed,
            broadcast=cohort.reference.broadcast,
            plan=member.plan,
            images=np.asarray(member.images),
            cohort=number,
            place=place,
            state=member.state,
            initial=cohort.initial,
        )
        for number, cohort in enumerate(cohorts)
        for place, member in enumerate(cohort.members)
    ]


def alike(seats: Sequence[Seat], most: int) -> list[list[Seat]]:
    """Seats whose work differs in nothing but the number of epochs, at most so many together.

    Those with the most steps come first.
    """
    kinds: list[tuple[ClientPlan, list[Seat]]] = []
    for seat in seats:
        known = next((members for plan, members in kinds if _alike(plan, seat.plan)), None)
        if known is None:
            kinds.append((seat.plan, [seat]))
        else:
            known.append(seat)
    together: list[list[Seat]] = []
    for _, members in kinds:
        members.sort(key=_steps, reverse=True)
        together += [members[start : start + most] for start in range(0, len(members), most)]
    return together


def _alike(plan: ClientPlan, other: ClientPlan) -> bool:
    return plan == other or plan.lasting(other.local.epochs) == other


def _steps(seat: Seat) -> int:
    return seat.plan.local.epochs * len(cuts(len(seat.images), seat.plan.local.batch))
