"""Masks that keep an exact number of weights, for M models side by side.

Every function takes tensors of shape [M, *shape] and treats the M models alike and independently. Ties go to
the weight that was held before, then to the lower flat index: stable sorts make that so on every device.
"""

import torch
from torch import Tensor


def top(score: Tensor, count: int, *, among: Tensor | None = None, held: Tensor | None = None) -> Tensor:
    """The `count` largest scores of each model, as bool [M, *shape].

    score: float [M, *shape], finite; among: bool [M, *shape], the candidates (default all);
    held: bool [M, *shape], who wins a tie (default nobody).
    """
    models = score.shape[0]
    flat = score.reshape(models, -1)
    if among is not None:
        candidates = among.reshape(models, -1)
        if count > int(candidates.sum(dim=1).min()):
            raise ValueError(f"cannot choose {count} weights: a model has fewer candidates")
        flat = flat.masked_fill(~candidates, -torch.inf)
    elif count > flat.shape[1]:
        raise ValueError(f"cannot choose {count} of {flat.shape[1]} weights")
    if held is None:
        chosen = torch.argsort(flat, dim=1, descending=True, stable=True)[:, :count]
    else:
        held_first = torch.argsort(held.reshape(models, -1).to(torch.int8), dim=1, descending=True, stable=True)
        ranks = torch.argsort(flat.gather(1, held_first), dim=1, descending=True, stable=True)
        chosen = held_first.gather(1, ranks[:, :count])
    mask = torch.zeros_like(flat, dtype=torch.bool)
    return mask.scatter_(1, chosen, True).reshape(score.shape)


def keep_largest(weights: Tensor, count: int, *, among: Tensor | None = None, held: Tensor | None = None) -> Tensor:
    """Keep each model's `count` largest |weights|: bool [M, *shape]."""
    return top(weights.abs(), count, among=among, held=held)


def drop_smallest(weights: Tensor, mask: Tensor, count: int) -> Tensor:
    """`mask` without the `count` active weights of smallest magnitude. Every model holds equally many."""
    active = int(mask[0].sum())
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
