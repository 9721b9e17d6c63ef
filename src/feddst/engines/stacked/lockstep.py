"""Which images each model sees in each step. Models train in lockstep and may have different numbers of images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feddst.core.minibatches import Indices, cuts


@dataclass(frozen=True)
class Lockstep:
    """index: int64 [steps, models, images], filled with 0; lengths: int64 [steps, models], 0 where a model is done.

    `before`: how many steps each model took in the round before these, `planned`: how many it takes in all of it, int64
    [models]; None: none, and these alone.
    """

    index: Indices
    lengths: Indices
    before: Indices | None = None
    planned: Indices | None = None

    @property
    def steps(self) -> int:
        """The steps of the longest training."""
        return len(self.lengths)

    def one_by_one(self) -> Iterator["Lockstep"]:
        """Each step alone."""
        for step in range(self.steps):
            alone = slice(step, step + 1)
            yield Lockstep(self.index[alone], self.lengths[alone], self.taken(step), self.all_planned)

    def taken(self, step: int) -> Indices:
        """How many steps of the round each model that is not done has behind it, int64 [models]."""
        return step + (np.zeros_like(self.lengths[0]) if self.before is None else self.before)

    @property
    def all_planned(self) -> Indices:
        """`planned`, int64 [models]."""
        return np.count_nonzero(self.lengths, axis=0) if self.planned is None else self.planned

    def minibatches(self) -> list[Indices]:
        """Each model's images in the first step; an arbitrary one if it is done, since none may be empty."""
        return [row[: max(1, length)] for row, length in zip(self.index[0], self.lengths[0].tolist(), strict=True)]


def in_lockstep(
    sequences: Sequence[Indices], batch: int, before: Indices | None = None, planned: Indices | None = None
) -> Lockstep:
    """The steps of models that go through these sequences, [epochs, images] each, in minibatches."""
    shapes: dict[tuple[int, ...], list[int]] = {}
    for model, sequence in enumerate(sequences):
        shapes.setdefault(sequence.shape, []).append(model)
    pieces = {shape: cuts(shape[1], batch) for shape in shapes}
    steps = max((shape[0] * len(pieces[shape]) for shape in shapes), default=0)
    widest = max((piece.stop - piece.start for found in pieces.values() for piece in found), default=0)
    index = np.zeros((steps, len(sequences), widest), dtype=np.int64)
    lengths = np.zeros((steps, len(sequences)), dtype=np.int64)
    for shape, models in shapes.items():
        together = np.stack([sequences[model] for model in models])
        step = 0
        for epoch in range(shape[0]):
            for piece in pieces[shape]:
                length = piece.stop - piece.start
                index[step, models, :length] = together[:, epoch, piece]
                lengths[step, models] = length
                step += 1
    return Lockstep(index, lengths, before, planned)


def epoch_losses(losses: NDArray[np.float64], lengths: Indices, sequences: Sequence[Indices]) -> list[list[float]]:
    """For each model the mean loss of each of its epochs, from the mean loss of every step, [steps, models]."""
    sums = losses * lengths
    found: list[list[float]] = []
    for model, sequence in enumerate(sequences):
        epochs, images = sequence.shape
        taken = int(np.count_nonzero(lengths[:, model]))
        each = sums[:taken, model].reshape(epochs, -1).sum(axis=1) if epochs else np.zeros(0)
        found.append((each / max(images, 1)).tolist())
    return found
