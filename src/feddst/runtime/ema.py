"""A moving average of the global model: it is evaluated and returned, while training goes on from the last model.

After round r the average moves from ā to d·ā + (1 − d)·θ, with d = min(decay, (1 + r)/(10 + r)), so that the first
rounds are soon forgotten. A weight that has entered the mask is averaged over the rounds since, not from 0: each weight
of a sparse layer has a mass m, 0 where it is absent, that moves from m to d·m + (1 − d), and its average moves by
(1 − d)/m of the way. Buffers such as BatchNorm's statistics are averaged too. It costs no bytes, and lies in the
server's state, as `average/…` and `mass/…`.
"""

from dataclasses import replace

import torch
from torch import Tensor

from feddst.core import Masks, ServerState, Tensors, masked

_MEAN, _MASS = "average/", "mass/"


def with_average(before: ServerState, after: ServerState, decay: float) -> ServerState:
    """The state after a round with its average, from that of the state before."""
    if not decay:
        return after
    kept = min(decay, (1 + before.round) / (10 + before.round))
    masses = _masses(before, after.masks, kept)
    held, now = _averaged(before), _averaged(after)
    old = [before.extra.get(_MEAN + name, held[name]) for name in now]
    # All tensors at once: on a GPU most of the time is spent on starting operations.
    steps = torch._foreach_mul(torch._foreach_sub(list(now.values()), old), 1 - kept)
    moves = {name: step / masses[name] if name in masses else step for name, step in zip(now, steps, strict=True)}
    means = dict(zip(now, torch._foreach_add(old, list(moves.values())), strict=True))
    # Absent weights have no mass, and 0/0 is not a number: `where`, not a product.
    found = {name: torch.where(after.masks[name], mean, 0) if name in masses else mean for name, mean in means.items()}
    extra = {**{_MEAN + name: mean for name, mean in found.items()}, **{_MASS + n: m for n, m in masses.items()}}
    return replace(after, extra={**after.extra, **extra})


def result_of(state: ServerState) -> ServerState:
    """The state with the model that a run returns: the average's parameters and buffers if there is an average."""
    params, buffers = (
        {name: state.extra.get(_MEAN + name, value) for name, value in group.items()}
        for group in (state.params, state.buffers)
    )
    return replace(state, params=params, buffers=buffers)


def _masses(before: ServerState, masks: Masks, kept: float) -> Tensors:
    """How much of each weight's average comes from rounds in which the mask held it: 1 if it always has."""
    if not masks:
        return {}
    old: list[Tensor] = []
    for name, mask in masks.items():
        known = before.extra.get(_MASS + name)
        old.append(before.masks.get(name, mask).to(torch.float32) if known is None else known)
    new = torch._foreach_add(torch._foreach_mul(old, kept), 1 - kept)
    return masked(dict(zip(masks, new, strict=True)), masks)


def _averaged(state: ServerState) -> Tensors:
    """All that is averaged: parameters, and those buffers that are not counters."""
    return {**state.params, **{name: value for name, value in state.buffers.items() if value.is_floating_point()}}
