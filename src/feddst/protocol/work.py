"""What a client is asked to do, as data: any engine can carry it out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from feddst.options import option


@dataclass(frozen=True)
class LocalTraining:
    """SGD on a client's own images."""

    epochs: int = option(10, "E: passes over a client's images in one round", at_least=1)
    batch: int = option(32, "images in a minibatch", at_least=1)
    lr: float = option(0.01, "learning rate", above=0)
    momentum: float = option(0.9, "SGD momentum on the client, new each round", at_least=0, below=1)
    l2: float = option(0.001, "L2 regularisation", at_least=0)
    order: Literal["shuffled", "fixed"] = option(
        "shuffled", "minibatches drawn anew each epoch, or (published code) once for the whole run"
    )
    weigh_by: Literal["images", "batches"] = option(
        "images", "a client's weight n_c in the average: its images, or (published code) its minibatches"
    )

    def weight(self, images: int) -> int:
        """n_c of a client that trains on so many images."""
        return images if self.weigh_by == "images" else -(-images // self.batch)


@dataclass(frozen=True)
class Proximal:
    """FedProx's penalty μ/2·‖θ − θ^r‖² on leaving the received model."""

    mu: float = option(1.0, "μ: strength of the proximal term", at_least=0)
    gradient: Literal["exact", "detached"] = option(
        "exact", "the term's real gradient, or (published code) none because its tensors are detached"
    )


@dataclass(frozen=True)
class Growth:
    """How a client chooses the connections it grows."""

    rule: Literal["gradient", "random"] = option("gradient", "grow the largest |gradient|, or at random")
    grow_from: Literal["inactive", "any"] = option(
        "inactive", "candidates: inactive weights, or (published code) any, zeroing active ones it picks"
    )
    images: Literal["all", "last-batch"] = option(
        "all", "the growth gradient is averaged over all images, or (published code) the last minibatch"
    )
    max_images: int = option(1024, "at most this many images enter the growth gradient", at_least=1)
    weights: Literal["pruned", "unpruned"] = option(
        "pruned", "the growth gradient is taken after the drop, or (published code) before it"
    )


@dataclass(frozen=True)
class Readjustment:
    """Drop `drop[layer]` active weights of each layer, then grow back to `budgets[layer]`."""

    after_epoch: int
    drop: Mapping[str, int]
    budgets: Mapping[str, int]
    growth: Growth = Growth()


@dataclass(frozen=True)
class ClientWork:
    """One client's orders for one round.

    `report` names extra tensors to send back: `gradient` is the mean task gradient over the client's images
    at the final weights, dense. `keep` names parameters that stay with the client: they are taken from its
    own state where it has them, and never uploaded. With `train=False` the client only reports.
    """

    local: LocalTraining
    readjust: Readjustment | None = None
    proximal: Proximal | None = None
    report: tuple[Literal["gradient"], ...] = ()
    keep: frozenset[str] = frozenset()
    train: bool = True

    def shortened(self, epochs: int) -> "ClientWork":
        """The same work cut to fewer epochs, as a straggler does it."""
        return replace(self, local=replace(self.local, epochs=min(epochs, self.local.epochs)))
