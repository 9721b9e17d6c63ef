"""What a run's network consists of before training: each parameter, whether it is sparse, and what it costs to use."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from feddst.core import Layer, ServerState, count_active, objective_of
from feddst.core.model import LayerTimes
from feddst.data.sizes import Sizes, sizes_of
from feddst.methods import Method, Sprout
from feddst.models import (
    check_fit,
    dense_reasons,
    forward_flops,
    initial_model,
    make_module,
    multiply_adds,
    network,
    network_name,
)
from feddst.runtime.config import RunConfig, make_method, with_pins


@dataclass(frozen=True)
class Part:
    """A parameter; `kept` counts its values that are not masked.

    `dense` says why it is not sparse, and is empty if it is. `multiply_adds` are those of one forward pass for one
    image without a mask; None where they are not counted, as for biases.
    """

    name: str
    shape: tuple[int, ...]
    size: int
    kept: int
    dense: str
    multiply_adds: int | None

    @property
    def density(self) -> float:
        """The share of the values that is kept."""
        return self.kept / self.size if self.size else 1.0

    @property
    def sparse_multiply_adds(self) -> int | None:
        """The multiply-adds with the values that are kept."""
        return None if self.multiply_adds is None else round(self.multiply_adds * self.density)


@dataclass(frozen=True)
class Anatomy:
    """A network and its parts. `notes` say what its method will still change."""

    network: str
    sizes: Sizes
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Weights and biases."""
        return sum(part.size for part in self.parts)

    @property
    def kept(self) -> int:
        """Weights and biases that are not masked."""
        return sum(part.kept for part in self.parts)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of one forward pass for one image, without masks."""
        return sum(part.multiply_adds or 0 for part in self.parts)

    @property
    def sparse_multiply_adds(self) -> int:
        """Multiply-adds with the values that are kept."""
        return sum(part.sparse_multiply_adds or 0 for part in self.parts)

    @property
    def forward_flops_dense(self) -> int:
        """FLOPs of that pass without masks, as rows of metrics have them."""
        return forward_flops({part.name: part.multiply_adds or 0 for part in self.parts}, {})

    @property
    def forward_flops_sparse(self) -> int:
        """FLOPs of that pass with the values that are kept, as rows of metrics have them."""
        counts = {part.name: part.multiply_adds or 0 for part in self.parts}
        return forward_flops(counts, {part.name: part.density for part in self.parts})


def anatomy_of(config: RunConfig) -> Anatomy:
    """The network of a run before its first round. Nothing is trained, measured or downloaded for this."""
    config = with_pins(config)
    wanted, sizes = config.model, sizes_of(config.data)
    module = make_module(lambda: network(wanted, sizes.shape, sizes.classes, sizes.dtype), config.seed)
    example = torch.zeros(1, *sizes.shape, dtype=sizes.dtype)
    check_fit(module, example, None, objective_of(config.local), sizes.classes)
    model = initial_model(module, prunable=wanted.prunable, dense=wanted.dense)
    method = make_method(config)
    # PruneFL would measure times for its later masks: the first does not depend on them.
    equal = LayerTimes({layer.name: 1.0 for layer in model.layers})
    state = method.init(replace(model, layer_times=lambda basis: equal), config.seed)
    active = count_active(state.masks)
    reasons = dense_reasons(module, wanted.prunable, wanted.dense) | _unmasked(method, state, model.layers)
    counts = multiply_adds(module, example)
    parts = tuple(
        Part(
            name,
            tuple(value.shape),
            value.numel(),
            active.get(name, value.numel()),
            reasons.get(name, ""),
            counts.get(name),
        )
        for name, value in model.params.items()
    )
    name = network_name(wanted, sizes.shape, sizes.classes, sizes.dtype)
    return Anatomy(name, sizes, parts, tuple(_notes(method, state, model.layers)))


def _unmasked(method: Method, state: ServerState, layers: Sequence[Layer]) -> dict[str, str]:
    """Why layers that may be pruned are not, by name."""
    if not state.round:
        return {layer.name: "its mask is made in round 0" for layer in layers}
    without = [layer.name for layer in layers if layer.name not in state.masks]
    return {
        name: "pruned in training" if name in state.budgets else f"{method.name} keeps all weights" for name in without
    }


def _notes(method: Method, state: ServerState, layers: Sequence[Layer]) -> list[str]:
    """How the number of weights will change, where that is known."""
    whole, planned = sum(layer.size for layer in layers), sum(state.budgets.values())
    if not state.round and planned < whole:
        return [f"{method.name} keeps {planned:,} of the {whole:,} prunable weights after round 0"]
    if isinstance(method, Sprout) and method.changes:
        last, end = sum(method.budgets(tuple(layers), method.sprout.end).values()), method.sprout.end
        return [f"{method.name} has {last:,} of the {whole:,} prunable weights from round {end:,} on"]
    return []
