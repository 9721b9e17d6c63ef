"""Which weights a network keeps: how many in each layer, which ones, and when that changes."""

from feddst.sparsity.distribution import Distribution, Sparsity
from feddst.sparsity.layers import prune_to_budgets, prune_within
from feddst.sparsity.masks import drop_smallest, grow_from_any, grow_largest, keep_largest
from feddst.sparsity.schedule import Timetable

__all__ = [
    "Distribution",
    "Sparsity",
    "Timetable",
    "drop_smallest",
    "grow_from_any",
    "grow_largest",
    "keep_largest",
    "prune_to_budgets",
    "prune_within",
]
