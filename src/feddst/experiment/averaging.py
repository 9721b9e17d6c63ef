"""A moving average of the global model: what is tested and taken away, while training goes on from the last round's.

After round r the average moves from ā to d·ā + (1 − d)·θ within the mask, with d = min(decay, (1 + r)/(10 + r)), so
that the first rounds are soon forgotten. It costs no bytes. It lies in the server's state, as `average/…`.
"""

from dataclasses import replace

import torch

from feddst.protocol import ServerState, Tensors, masked

_PREFIX = "average/"


def with_average(before: ServerState, after: ServerState, decay: float) -> ServerState:
    """The state after a round with its average, from that of the state before."""
    if not decay:
        return after
    kept = min(decay, (1 + before.round) / (10 + before.round))
    old = [before.extra.get(_PREFIX + name, before.params[name]) for name in after.params]
    # All tensors at once: on a GPU most of the time is spent on starting operations.
    means = torch._foreach_add(torch._foreach_mul(old, kept), torch._foreach_mul(list(after.params.values()), 1 - kept))
    found = masked(dict(zip(after.params, means, strict=True)), after.masks)
    return replace(after, extra={**after.extra, **{_PREFIX + name: mean for name, mean in found.items()}})


def result_of(state: ServerState) -> Tensors:
    """The parameters of the model that a run has come to: the average where there is one."""
    return {name: state.extra.get(_PREFIX + name, value) for name, value in state.params.items()}
