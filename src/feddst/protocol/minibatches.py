"""The order in which a client sees its images: index arrays that every engine receives alike."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from feddst.protocol.keys import generator
from feddst.protocol.work import LocalTraining

Indices = NDArray[np.int64]


def minibatches(images: int, local: LocalTraining, seed: int, round: int, client: int) -> list[list[Indices]]:
    """For each epoch, the minibatches as index arrays into the client's images."""
    if local.order == "fixed":
        order = generator(seed, "minibatches", client=client).permutation(images)
        return [cut(order, local.batch)] * local.epochs
    draws = generator(seed, "minibatches", round, client)
    return [cut(draws.permutation(images), local.batch) for _ in range(local.epochs)]


def cut(order: Indices, batch: int) -> list[Indices]:
    """`order` in pieces of `batch`; a last piece of one image joins the one before (BatchNorm needs two)."""
    ends = list(range(batch, len(order), batch))
    if ends and batch > 1 and len(order) - ends[-1] == 1:
        ends.pop()
    order = order.astype(np.int64, copy=False)
    return [order[begin:end] for begin, end in pairwise([0, *ends, len(order)])]


def balanced(labels: NDArray[np.int64], size: int, draws: np.random.Generator) -> Indices:
    """At most `size` images at random, as many of each class that occurs in `labels` as of the others."""
    classes = np.unique(labels)
    each = max(1, min(size // len(classes), int(min((labels == label).sum() for label in classes))))
    chosen = [draws.permutation(np.flatnonzero(labels == label))[:each] for label in classes]
    return np.concatenate(chosen).astype(np.int64)
