"""A round that is under way: who was given what, and what has come back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from feddst.core import ClientPlan, ClientState, Masks, SparseSum
from feddst.core.tensors import movement
from feddst.wire import Downlink

NAMED = 3
"""So many refused updates of a round are told one by one."""


@dataclass(frozen=True)
class Arrival:
    """What is kept of one reply until the round ends: all but the update, which is in the sum.

    `bits` by formula and `weight` are 0 if the update was refused.
    """

    client: int
    bytes: int
    mask_bytes: int
    bits: int
    weight: int
    loss: float | None
    state: ClientState


@dataclass(frozen=True)
class Given:
    """Who was given which orders, and how many images that client has.

    `download` are the bytes that were sent to it, and those of them that are the mask.
    """

    client: int
    plan: ClientPlan
    images: int
    download: tuple[int, int]

    @property
    def trained_on(self) -> int:
        """How many images it trains on, or takes its reports over."""
        return self.plan.trained_on(self.images)


@dataclass
class OpenRound:
    """A round between its broadcast and its end; `given` and `arrivals` by place in the round.

    `unsent` are the places whose client could not be sent anything, and why; a broadcast costs `download_price` by
    formula. `refusals` say whose updates could not be used, and why; so many of these clients have `diverged`. At the
    end it is known whether the updates were `used`, whether the server's masks are others (`mask_moved`), and of the
    layers whose masks may be, how many weights entered and left (`moved`).
    """

    number: int
    downlink: Downlink
    total: SparseSum
    began: float
    given: list[Given] = field(default_factory=list)
    price: tuple[ClientPlan, Mapping[str, int] | None, int] | None = None
    arrivals: dict[int, Arrival] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    diverged: int = 0
    used: bool = True
    late: int = 0
    unsent: dict[int, str] = field(default_factory=dict)
    download_price: int = 0
    mask_moved: bool = False
    moved: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def mostly_diverged(self) -> bool:
        """Whether more than half of the clients that answered have diverged."""
        return 2 * self.diverged > len(self.arrivals)

    def in_order(self) -> list[Arrival]:
        """What has arrived, in the order of places."""
        return [arrival for _, arrival in sorted(self.arrivals.items())]

    def missing(self) -> list[int]:
        """The clients that were asked and have not answered."""
        return [given.client for place, given in enumerate(self.given) if place not in self.arrivals]

    def note_movement(self, before: Masks, after: Masks) -> None:
        """The server's masks before and after the round."""
        self.moved = movement(before, after)
        self.mask_moved = any(map(any, self.moved.values())) or before.keys() != after.keys()

    def mean_loss(self) -> float | None:
        """The mean over clients by weight; None if nobody trained."""
        trained = [(arrival.loss, arrival.weight) for arrival in self.in_order() if arrival.loss is not None]
        weight = sum(weight for _, weight in trained)
        return sum(loss * weight for loss, weight in trained) / weight if weight else None
