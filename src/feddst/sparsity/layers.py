"""Magnitude pruning of one model's named layers, each to its own budget."""

from collections.abc import Mapping

from torch import Tensor

from feddst.core.tensors import Masks, Tensors, count_each
from feddst.sparsity.masks import keep_largest


def prune_to_budgets(params: Tensors, budgets: Mapping[str, int]) -> dict[str, Tensor]:
    """For each layer, the mask that keeps the largest |θ|, up to its budget."""
    return {name: keep_largest(params[name][None], budget)[0] for name, budget in budgets.items()}


def prune_within(params: Tensors, budgets: Mapping[str, int], *, among: Masks, held: Masks) -> dict[str, Tensor]:
    """The same among the weights that `among` names, or all of them where they are fewer than the budget.

    Among equals, those that were `held` before come first.
    """
    counts = dict(zip(budgets, count_each(among[name] for name in budgets), strict=True))
    return {
        name: among[name]
        if counts[name] <= budget
        else keep_largest(params[name][None], budget, among=among[name][None], held=held[name][None])[0]
        for name, budget in budgets.items()
    }
