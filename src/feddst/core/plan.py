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
    weigh_by: Literal["images", "batches", "equal"] = option(
        "images", "a client's weight n_c in the average: its images, (published code) its minibatches, or 1"
    )

    def weight(self, images: int) -> int:
        """n_c of a client that trains on so many images."""
        return {"images": images, "batches": -(-images // self.batch), "equal": 1}[self.weigh_by]


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

    def exchange(self, layer: str, active: int) -> tuple[int, int]:
        """Of a layer that has so many weights, how many leave, and how many enter after that to fill its budget."""
        if layer not in self.drop:
            return 0, 0
        budget = self.budgets[layer]
        kept = max(0, min(active, budget - self.drop[layer]))
        return active - kept, budget - kept


@dataclass(frozen=True)
class Report:
    """One more tensor for each parameter to send back, dense.

    `gradient` is the task loss's mean gradient g, `hessian-gradient` is Hg with the loss's Hessian H, `sign` is, for
    each weight, +1 with probability (b + g)/2b and otherwise −1, where b is `bound` and g is cut to −b … b. They are
    taken at the client's final weights, over all its images, over one minibatch drawn at random, over one with as many
    images of each class that it holds, or over all minibatches of an epoch, the sum of whose mean losses Hg is taken
    of. The network's outputs are divided by `temperature` first. If parameters are named in `within`, g and H of Hg are
    those of these alone, and the others get 0.

    `squared-gradient` is the mean of g² over the steps of the round, where g is the gradient of a step's minibatch
    before it, dense as well, and `kept` is 1 where masks on which the client has settled keep a weight, else 0, and 1
    for what has no mask. None of the above applies to them.
    """

    kind: Literal["gradient", "hessian-gradient", "sign", "squared-gradient", "kept"]
    images: Literal["all", "minibatch", "balanced", "minibatches"] = "all"
    temperature: float = 1.0
    bound: float = 1.0
    within: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Ticket:
    """A client's own sparse network, found as a lottery ticket before the training of a round.

    The client holds a mask of its own, all ones at first. The share `held_out` of its images is never trained on. If
    the received weights under its mask get more than `threshold` of those right, each layer drops the share `prune` of
    its active weights, the smallest, but none below `budgets`, and the rest go back to their initial values.
    """

    threshold: float
    prune: float
    held_out: float
    budgets: Mapping[str, int]


@dataclass(frozen=True)
class Settling:
    """PruneFL's first stage, by one client alone and instead of its epochs: rounds of training and pruning.

    A round goes over the client's images once. After every `every` of them it chooses its masks anew, as PruneFL's
    server would, from the mean squared gradients of all steps since the last time: each weight of a layer costs
    `times[layer]`, everything else `constant`, and the share `prunable` of a layer's active weights may leave. It ends
    when the density has changed by at most the share `steady` that many times `in_a_row`, or after `rounds`. What it
    sends are all weights, zeros where its masks leave them out.
    """

    rounds: int
    every: int
    prunable: float
    times: Mapping[str, float]
    constant: float
    steady: float = 0.1
    in_a_row: int = 5


@dataclass(frozen=True)
class ClientWork:
    """One client's orders for one round.

    `report` asks for more tensors than the trained weights. `keep` names parameters that stay with the client: they
    are taken from its own state where it has them, else from the initial weights, and never travel. With `train=False`
    the client only reports.
    """

    local: LocalTraining
    readjust: Readjustment | None = None
    proximal: Proximal | None = None
    ticket: Ticket | None = None
    report: tuple[Report, ...] = ()
    keep: frozenset[str] = frozenset()
    train: bool = True
    settle: Settling | None = None

    def shortened(self, epochs: int) -> "ClientWork":
        """The same work cut to fewer epochs, as a straggler does it."""
        return self.lasting(min(epochs, self.local.epochs))

    def lasting(self, epochs: int) -> "ClientWork":
        """The same work for so many epochs."""
        return replace(self, local=replace(self.local, epochs=epochs))
