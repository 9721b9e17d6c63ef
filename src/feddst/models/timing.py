"""The time of a training step: a constant, and a time for each weight of a prunable layer.

PruneFL models the time of a round as T + Σ t·(active weights), summed over layers. With `flops`, t is the number of
multiply-adds that a weight takes part in for one image, and T is 0. `measured` takes times on one core of this machine,
in PyTorch (where the sparse kernels train, `engines.native.timing` measures those): t is the time of each prunable
layer's forward and backward pass on inputs of its real shape, divided by its weights, and T is the rest of the step.
These are times of dense kernels: the reference engine multiplies by masks, so a layer costs the same at every density.
That a pruned weight saves t is PruneFL's assumption, which cannot be measured here. Neither includes the time to send
a weight.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from feddst.core.batches import Batch, call, mapped, rows, tensors_of
from feddst.core.model import Layer, LayerTimes, TimeBasis
from feddst.errors import ModelError
from feddst.models.flops import multiply_adds
from feddst.models.layout import lay_out, layout_for
from feddst.models.matrices import matrices
from feddst.stopwatch import one_thread, timed

_REPEATS = 30


def layer_times(module: nn.Module, example: Batch, batch: int, layers: Sequence[Layer], basis: TimeBasis) -> LayerTimes:
    """The times of one step on `batch` images (or, with `flops`, on one); example: [1, *input shape].

    The module is left as it is.
    """
    if basis == "flops":
        counts = multiply_adds(module, example)
        _refuse_unseen(layers, counts, "counted", "equal or measured")
        return LayerTimes({layer.name: counts[layer.name] / layer.size for layer in layers})
    return _measured(module, mapped(lambda value: value.expand(batch, *value.shape[1:]), example), layers)


@dataclass(frozen=True)
class _Call:
    """One call of a layer within a step, with its detached inputs."""

    layer: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def seconds(self) -> float:
        """How long the layer takes forward and backward."""
        given = [value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor)]
        wanted = [value for value in (*given, *self.layer.parameters()) if value.requires_grad]
        return _seconds(lambda: self.layer(*self.args, **self.kwargs), wanted)


def _measured(module: nn.Module, inputs: Batch, layers: Sequence[Layer]) -> LayerTimes:
    module = copy.deepcopy(module).train()
    layout = layout_for(module, rows(inputs, slice(0, 1)))  # as in training
    lay_out(module, layout)
    inputs = mapped(layout, inputs)
    owned: dict[str, list[Layer]] = {}
    owners = {matrix.name: matrix.owner for matrix in matrices(module)}
    for layer in layers:
        owned.setdefault(owners.get(layer.name, layer.name.rpartition(".")[0]), []).append(layer)
    with one_thread(), torch.random.fork_rng(devices=[]), torch.enable_grad():
        calls = _calls(module, inputs, list(owned))
        _refuse_unseen(layers, {layer.name for owner in calls for layer in owned[owner]}, "timed", "equal")
        trained = [value for value in module.parameters() if value.requires_grad]
        whole = _seconds(lambda: _total(call(module, inputs)), trained)
        spent = {owner: sum(call.seconds() for call in calls[owner]) for owner in owned}
    each = {owner: seconds / sum(layer.size for layer in owned[owner]) for owner, seconds in spent.items()}
    per_weight = {layer.name: each[owner] for owner, mine in owned.items() for layer in mine}
    return LayerTimes(per_weight, max(0.0, whole - sum(spent.values())))


def _calls(module: nn.Module, inputs: Batch, owners: Sequence[str]) -> dict[str, list[_Call]]:
    """Every call of the named submodules in one forward pass."""
    calls: dict[str, list[_Call]] = {}

    def note(owner: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cut = {name: _cut(value) for name, value in kwargs.items()}
        calls.setdefault(owner, []).append(_Call(layer, tuple(map(_cut, args)), cut))

    handles = [
        module.get_submodule(owner).register_forward_pre_hook(partial(note, owner), with_kwargs=True)
        for owner in owners
    ]
    call(module, inputs)
    for handle in handles:
        handle.remove()
    return calls


def _total(outputs: Any) -> Tensor:
    """Something like a loss."""
    return torch.stack([value.float().square().mean() for value in tensors_of(outputs)]).sum()


def _cut(value: Any) -> Any:
    """A tensor without its history; the first layer's input still needs no gradient."""
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


def _seconds(forward: Callable[[], Any], wanted: Sequence[Tensor]) -> float:
    """The median time of a forward pass and of the gradient of `wanted`."""

    def both() -> None:
        found = forward()
        output = found[0] if isinstance(found, tuple) else found
        if wanted:
            torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)

    return timed(both, _REPEATS).median


def _refuse_unseen(layers: Sequence[Layer], seen: Any, done: str, remedy: str) -> None:
    unseen = [layer.name for layer in layers if layer.name not in seen]
    if unseen:
        raise ModelError(f"the time of {unseen[0]} cannot be {done}: set prunefl.layer_times to {remedy}")
