"""The order in which a client sees its images: index arrays that every engine receives alike."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from feddst.core.keys import generator
from feddst.core.plan import LocalTraining

Indices = NDArray[np.int64]


def minibatches(images: int, local: LocalTraining, seed: int, round: int, client: int) -> list[list[Indices]]:
    """For each epoch, the minibatches as index arrays into the client's images."""
    pieces = cuts(images, local.batch)
    return [[order[piece] for piece in pieces] for order in orders(images, local, seed, round, client)]


def orders(images: int, local: LocalTraining, seed: int, round: int, client: int) -> Indices:
    """For each epoch, the order in which a client goes through its images: [epochs, images]."""
    if local.order == "fixed":
        order = generator(seed, "minibatches", client=client).permutation(images).astype(np.int64)
        return np.tile(order, (local.epochs, 1))
    draws = generator(seed, "minibatches", round, client)
    return draws.permuted(np.tile(np.arange(images, dtype=np.int64), (local.epochs, 1)), axis=1)


def cuts(images: int, batch: int) -> list[slice]:
    """Where an epoch's order is cut into minibatches; a single image left over joins the last one.

    BatchNorm needs two.
    """
    ends = list(range(batch, images, batch))
    if ends and batch > 1 and images - ends[-1] == 1:
        ends.pop()
    return [slice(*place) for place in pairwise([0, *ends, images])]


def planned_steps(images: int, batch: int, passes: int) -> int:
    """How many minibatches there are in this many passes over a client's images."""
    return passes * len(cuts(images, batch))


def balanced(labels: NDArray[np.int64], size: int, draws: np.random.Generator) -> Indices:
    """At most `size` random images, equally many of each class that occurs in `labels`."""
    classes = np.unique(labels)
    each = max(1, min(size // len(classes), int(min((labels == label).sum() for label in classes))))
    chosen = [draws.permutation(np.flatnonzero(labels == label))[:each] for label in classes]
    return np.concatenate(chosen).astype(np.int64)
