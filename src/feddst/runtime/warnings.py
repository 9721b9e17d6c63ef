"""What a user should know of a sparse network before it is trained: that little of it is sparse, or that it is cut."""

from collections.abc import Iterable

from feddst.core import ServerState
from feddst.runtime.wording import counted, percent

_NAMED = 3
"""So many names are enough for a line."""


def forewarnings(state: ServerState) -> list[str]:
    """A line for each thing that is worth knowing; `state` is that before the first round."""
    found = [_mostly_dense(state), *([emptied(state)] if state.round else [])]  # in round 0 the mask is still to come
    return [line for line in found if line]


def emptied(state: ServerState) -> str:
    """Which layers have no weight left, and what to do; nothing if all have some."""
    names = [name for name, count in state.budgets.items() if not count]
    if not names:
        return ""
    return (
        f"no weight is left in {counted(len(names), 'layer')} of {len(state.budgets)} ({_some(names)}), so that what "
        "the network gives may not depend on its input: lower sparsity.level, set sparsity.distribution to even, or "
        "name layers in model.dense"
    )


def _mostly_dense(state: ServerState) -> str:
    """That more than half of the weights of a network that is to be sparse cannot be; nothing if it is less."""
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
