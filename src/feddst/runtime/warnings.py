"""What a user should know of a sparse network before training: that it is mostly dense, or that a layer is empty."""

from collections.abc import Iterable

from feddst.core import ServerState
from feddst.runtime.wording import counted, percent

_NAMED = 3
"""How many names a line has at most."""


def forewarnings(state: ServerState) -> list[str]:
    """A line for each warning; `state` is that before the first round."""
    found = [_mostly_dense(state), *([emptied(state)] if state.round else [])]  # in round 0 the mask is still to come
    return [line for line in found if line]


def emptied(state: ServerState) -> str:
    """A warning of layers without any weight, and what to do; empty if all have some."""
    names = [name for name, count in state.budgets.items() if not count]
    if not names:
        return ""
    return (
        f"no weight is left in {counted(len(names), 'layer')} of {len(state.budgets)} ({_some(names)}), so that what "
        "the network gives may not depend on its input: lower sparsity.level, set sparsity.distribution to even, or "
        "name layers in model.dense"
    )


def _mostly_dense(state: ServerState) -> str:
    """A warning if more than half of a sparse network's weights must stay dense; else empty."""
    dense = {name: value.numel() for name, value in state.params.items() if name not in state.budgets}
    size, kept = sum(value.numel() for value in state.params.values()), sum(dense.values())
    if not state.budgets or 2 * kept <= size:
        return ""
    largest = sorted(dense, key=lambda name: -dense[name])
    return (
        f"{percent(kept / size)} of the {size:,} weights and biases stay dense, whatever sparsity.level is "
        f"({_some(largest)}): model.prunable says which may be pruned ('*': all but vectors and norms)"
    )


def _some(names: Iterable[str]) -> str:
    """The first few of them."""
    known = list(names)
    return ", ".join(known[:_NAMED]) + (", …" if len(known) > _NAMED else "")
