"""Magnitude pruning of one model's named layers, each to its own budget."""

from collections.abc import Mapping

from torch import Tensor

from feddst.protocol.tensors import Masks, Tensors
from feddst.sparsity.masks import keep_largest


def prune_to_budgets(params: Tensors, budgets: Mapping[str, int], *, held: Masks | None = None) -> dict[str, Tensor]:
    """For each layer, the mask of its budget's largest |θ|; among equals, those `held` before come first."""
    return {
        name: keep_largest(
            params[name].unsqueeze(0), budget, held=None if held is None else held[name].unsqueeze(0)
        ).squeeze(0)
        for name, budget in budgets.items()
    }
