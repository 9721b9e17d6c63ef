"""Masks that keep an exact number of weights, for M models side by side.

Every function takes tensors of shape [M, *shape] and treats the M models alike and independently. Ties go to
the weight that was held before, then to the lower flat index, on every device.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feddst.core.tensors import count_kept

Flat = NDArray[np.bool_]
Places = NDArray[np.intp]
_ONE_IN = 61
"""A guess samples one score in this many: a prime, so that it shares no period with a layer's width."""
_AT_LEAST = 16
"""The least number of samples above the guess."""


def top(score: Tensor, count: int, *, among: Tensor | None = None, held: Tensor | None = None) -> Tensor:
    """The `count` largest scores of each model, as bool [M, *shape].

    score: float [M, *shape], finite; among: bool [M, *shape], the candidates (default all);
    held: bool [M, *shape], which weights win ties (default none).
    """
    models = score.shape[0]
    flat = score.detach().reshape(models, -1)
    candidates = torch.ones_like(flat, dtype=torch.bool) if among is None else among.reshape(models, -1)
    fewest, most = _least_and_most(candidates)
    if count > fewest:
        where = f"of {fewest} weights" if among is None else "weights: a model has fewer candidates"
        raise ValueError(f"cannot choose {count} {where}")
    if count == most:
        return candidates.clone().reshape(score.shape)
    choose = _by_selecting if _can_select(flat) else _by_sorting
    return choose(flat, count, candidates, None if held is None else held.reshape(models, -1)).reshape(score.shape)


def _least_and_most(masks: Tensor) -> tuple[int, int]:
    """How many weights the masks [M, n] keep: the fewest, and the most."""
    counts = [count_kept(mask) for mask in masks] if masks.device.type == "cpu" else masks.sum(dim=1).tolist()
    return min(counts), max(counts)


def _by_sorting(score: Tensor, count: int, candidates: Tensor, held: Tensor | None) -> Tensor:
    """By stable sorts, the plainest way. All tensors are [M, n]."""
    score = score.masked_fill(~candidates, -torch.inf)
    if held is None:
        chosen = torch.argsort(score, dim=1, descending=True, stable=True)[:, :count]
    else:
        held_first = torch.argsort(held.to(torch.int8), dim=1, descending=True, stable=True)
        ranks = torch.argsort(score.gather(1, held_first), dim=1, descending=True, stable=True)
        chosen = held_first.gather(1, ranks[:, :count])
    return torch.zeros_like(candidates).scatter_(1, chosen, True)


def _by_selecting(score: Tensor, count: int, candidates: Tensor, held: Tensor | None) -> Tensor:
    """The same on a CPU in a twentieth of the time: only the smallest score that is chosen has to be found."""
    comparable = score if score.dtype is torch.float64 else score.float()
    first = torch.zeros_like(candidates) if held is None else held
    models = zip(comparable.numpy(), candidates.numpy(), first.numpy(), strict=True)
    return torch.from_numpy(np.stack([_selected(values, count, among, before) for values, among, before in models]))


def _selected(score: NDArray[Any], count: int, among: Flat, held: Flat) -> Flat:
    """One model's choice; all arrays are [n]."""
    chosen = np.zeros_like(among)
    if count:
        places = _contenders(score, count, among)
        values = score[places]
        least = _nth_largest(values, count)
        above, level = places[values > least], places[values == least]
        held_first = np.concatenate([level[held[level]], level[~held[level]]])
        chosen[above] = True
        chosen[held_first[: count - len(above)]] = True
    return chosen


def _contenders(score: NDArray[Any], count: int, among: Flat) -> Places:
    """Positions of candidates that may be chosen: all of them, or those above a guess, if these are enough.

    The guess is a score that about 2·`count` scores reach, estimated from a sample. Where few of many are wanted, as in
    growth, this takes a tenth of the time.
    """
    sample = score[::_ONE_IN][among[::_ONE_IN]]
    rank = 2 * count // _ONE_IN + _AT_LEAST
    if 2 * rank < len(sample):
        found = np.flatnonzero((score >= _nth_largest(sample, rank)) & among)
        if len(found) >= count:
            return found
    return np.flatnonzero(among)


def _nth_largest(score: NDArray[Any], n: int) -> Any:
    """The n-th largest score, n ≥ 1.

    The scores are negated because numpy is slow where many equal numbers, such as zero gradients, come first.
    """
    falling = -score
    falling.partition(n - 1)
    return -falling[n - 1]


def _can_select(score: Tensor) -> bool:
    """Whether scores are on a CPU and none is NaN: sorting ranks NaN as the largest."""
    return score.device.type == "cpu" and not bool(score.max().isnan())


def keep_largest(weights: Tensor, count: int, *, among: Tensor | None = None, held: Tensor | None = None) -> Tensor:
    """Keep each model's `count` largest |weights|: bool [M, *shape]."""
    return top(weights.abs(), count, among=among, held=held)


def drop_smallest(weights: Tensor, mask: Tensor, count: int) -> Tensor:
    """`mask` without the `count` active weights of smallest magnitude. Every model holds equally many."""
    active = count_kept(mask[0])
    return top(weights.abs(), active - min(count, active), among=mask)


def grow_largest(score: Tensor, mask: Tensor, count: int, *, held: Tensor | None = None) -> Tensor:
    """`mask` with the `count` inactive weights of largest score added."""
    return mask | top(score, count, among=~mask, held=held)


def grow_from_any(score: Tensor, mask: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The published code's growth: the `count` largest scores of all weights, active ones too.

    Returns the grown mask, and what was picked (the published code zeroes it, survivors included). The mask
    ends short of its budget by as many active weights as were picked.
    """
    picked = top(score, count)
    return mask | picked, picked
