"""The details of a run's rounds, beyond their rows."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from feddst.core import Masks
from feddst.core.metric import Metric
from feddst.models.spatial import Grid
from feddst.runtime.details import Detail, LayerLife, PixelMap, score_counts, span_of, unevaluated, write_detail
from feddst.runtime.rounds import Round


class DetailLog:
    """Makes the details of rounds, one after another.

    `layers` are the sizes of the prunable layers in the model's order, `grids` is what the linear layers read, as
    `input_grids` finds it.
    """

    def __init__(
        self, layers: Mapping[str, int], grids: Mapping[str, Grid | None], first_round: int, eval_every: int
    ) -> None:
        self._layers = layers
        self._grids = grids
        self._first_round = first_round
        self._eval_every = eval_every
        self._digest = hashlib.blake2b(digest_size=8)
        self._shown: PixelMap | None = None

    def go_on_after(self, details: Sequence[Detail]) -> None:
        """Continue after these details, written before."""
        self._digest = _digest_of(details, self._eval_every)
        self._shown = next((one.inputs for one in reversed(details) if one.inputs is not None), None)

    def append(
        self,
        ended: Round,
        masks: Masks,
        active: Mapping[str, int],
        scores: NDArray[np.float64] | None,
        metric: Metric,
        *,
        evaluation_due: bool,
    ) -> Detail | None:
        """The detail of a round that ended with these masks and, if evaluated, these clients' scores; None if empty."""
        begins = ended.number == self._first_round
        counted = scores is not None and bool(np.isfinite(scores).any())
        span = span_of(scores, metric) if scores is not None and counted else None
        detail = Detail(
            round=ended.number,
            layers=self._lives(ended, active) if ended.mask_moved or begins else (),
            clients=score_counts(scores, span) if scores is not None and counted else None,
            inputs=self._new_picture(masks) if evaluation_due else None,
            span=span,
        )
        if not detail.tells:
            return None
        _tell(self._digest, detail, self._eval_every)
        return detail

    @property
    def digest(self) -> str:
        """A digest of all details so far, as `digest_of` makes it."""
        return self._digest.hexdigest()

    def _lives(self, ended: Round, active: Mapping[str, int]) -> tuple[LayerLife, ...]:
        apart = ended.total.apart()
        return tuple(
            LayerLife(name, size, active.get(name, size), *ended.moved.get(name, (0, 0)), apart.get(name))
            for name, size in self._layers.items()
        )

    def _new_picture(self, masks: Masks) -> PixelMap | None:
        """The first linear layer's mask, None if it is as last shown, or its inputs are no image."""
        name = next((name for name in self._grids if name in masks), None)
        grid = None if name is None else self._grids[name]
        if name is None or grid is None:
            return None
        picture = PixelMap(name, shares(masks[name], grid))
        if picture == self._shown:
            return None
        self._shown = picture
        return picture


def digest_of(details: Sequence[Detail], eval_every: int) -> str:
    """A digest of details, without evaluations that were due only because the run ended there.

    Those are removed when the run goes on.
    """
    return _digest_of(details, eval_every).hexdigest()


def _digest_of(details: Sequence[Detail], eval_every: int) -> "hashlib.blake2b":
    digest = hashlib.blake2b(digest_size=8)
    for detail in details:
        _tell(digest, detail, eval_every)
    return digest


def _tell(digest: "hashlib.blake2b", detail: Detail, eval_every: int) -> None:
    scheduled = detail.round % eval_every == 0
    for lasting in [detail] if scheduled else unevaluated([detail], detail.round):
        digest.update(write_detail(lasting).encode())


def shares(mask: Tensor, grid: Grid) -> tuple[tuple[float, ...], ...]:
    """By place, the share of the weights leaving it that a mask keeps; mask: bool [outputs, channels·height·width]."""
    counts: list[list[int]] = mask.reshape(-1, *grid).sum((0, 1)).tolist()
    weights = len(mask) * grid[0]
    return tuple(tuple(round(count / weights, 3) for count in row) for row in counts)
