"""Where in an image the inputs of linear layers come from, found on a real input."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from feddst.core.batches import Batch, tensors_of
from feddst.models.dry import dry_forward

Grid = tuple[int, int, int]
"""Channels, height, width."""


def input_grids(module: nn.Module, example: Batch) -> dict[str, Grid | None]:
    """The grid that each linear layer reads flattened, by weight name, in the model's order; None if there is none.

    It is the last activation of as many values with channels, height and width, or the image itself. A single place is
    no grid. example: [1, *input shape].
    """
    layers = {
        f"{name}.weight" if name else "weight": layer
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear)
    }
    found: dict[str, Grid | None] = dict.fromkeys(layers)
    seen = _Seen(example)

    def look(name: str) -> Callable[[nn.Linear, tuple[Tensor, ...]], None]:
        def before(layer: nn.Linear, inputs: tuple[Tensor, ...]) -> None:
            if found[name] is None and inputs and inputs[0].shape == (1, layer.in_features):
                found[name] = seen.last_of(layer.in_features)

        return before

    handles = [layer.register_forward_pre_hook(look(name)) for name, layer in layers.items()]
    try:
        with seen:
            dry_forward(module, example)
    finally:
        for handle in handles:
            handle.remove()
    return found


class _Seen(TorchFunctionMode):
    """Notes the shapes of activations with channels, height and width, whether a module or a function makes them."""

    def __init__(self, example: Batch) -> None:
        super().__init__()
        shape = tuple(tensors_of(example)[0].shape[1:])
        self._grids = [(1,) * (3 - len(shape)) + shape] if len(shape) in (2, 3) else []

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.dim() == 4 and made.shape[0] == 1:
            self._grids.append(tuple(made.shape[1:]))
        return made

    def last_of(self, size: int) -> Grid | None:
        """The last grid of `size` values, if it has more than one place."""
        grid = next((grid for grid in reversed(self._grids) if math.prod(grid) == size), None)
        return None if grid is None or math.prod(grid[1:]) < 2 else (grid[0], grid[1], grid[2])
