"""Makes any `nn.Module` federable: its tensors by name, and which of them may be pruned."""

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from feddst.core import Objective
from feddst.core.batches import Batch, form_of, tensors_of
from feddst.core.keys import torch_seed
from feddst.core.model import InitialModel, Layer, biases_beside
from feddst.core.tensors import Tensors
from feddst.errors import ModelError
from feddst.models.dry import dry_forward
from feddst.models.matrices import EMBEDDINGS, Matrix, first_names, kinds, matrices

VECTOR = "a bias or other vector"
OF_A_NORM = "part of a norm"
FROZEN = "frozen"
NAMED = "named by model.dense"
UNNAMED = "not named by model.prunable"
NO_MATRIX = "of no convolution, linear, recurrent or attention layer"
EMBEDDED = "an embedding, which model.prunable may name"
"""Why parameters stay dense."""

ModuleSource = nn.Module | Callable[[], nn.Module]
"""A module with its initial weights, or a function that makes one (weights then follow the run's seed)."""


def make_module(source: ModuleSource, seed: int) -> nn.Module:
    """The module with its initial weights; drawn from `seed` if the source is a function."""
    if isinstance(source, nn.Module):
        return source
    if not callable(source):
        raise ModelError(f"model must be an nn.Module or a function that makes one, got {source!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "weights"))
        module = source()
    if not isinstance(module, nn.Module):
        raise ModelError(f"model must be an nn.Module or a function that makes one, got {type(module).__name__}")
    return module


def initial_model(module: nn.Module, *, prunable: Sequence[str] = (), dense: Sequence[str] = ()) -> InitialModel:
    """A module's tensors, copied, with its prunable layers chosen by the given patterns."""
    params = {name: value.detach().clone() for name, value in module.named_parameters()}
    buffers = {name: value.detach().clone() for name, value in persistent_buffers(module)}
    return InitialModel(params=params, buffers=buffers, layers=prunable_layers(module, prunable, dense))


def outputs_for(module: nn.Module, inputs: Batch) -> Any:
    """What the module gives for some inputs, in evaluation mode; raises `ModelError` if it does not take them."""
    try:
        return dry_forward(module, inputs)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if "dtype" in reason and not any(value.is_floating_point() for value in tensors_of(inputs)):
            reason += "; whole numbers are left as they are, as token ids: give numbers as floats, .astype('float32')"
        raise ModelError(f"the model does not take inputs {form_of(inputs)}: {reason}") from None


def check_fit(module: nn.Module, inputs: Batch, targets: Batch | None, objective: Objective, classes: int) -> None:
    """Raise `ModelError` unless the module's outputs for inputs like these fit the targets.

    Both are of two examples; the targets are None where they are not known. `classes` is how many classes targets may
    have, 0 if they are no classes.
    """
    outputs = outputs_for(module, inputs)
    if targets is not None:
        objective.check_outputs(outputs, targets, classes)


def prunable_layers(module: nn.Module, prunable: Sequence[str] = (), dense: Sequence[str] = ()) -> tuple[Layer, ...]:
    """The weights that `matrices` finds, or those `prunable` names, without those `dense` names and frozen ones.

    A frozen weight has no gradient, by which most methods judge weights.
    """
    params, known = dict(module.named_parameters()), _known(module)
    names = _matching(module, prunable, "model.prunable") if prunable else set(known) - _embedded(module)
    never = _never_masked(module, params)
    for name in prunable:
        if name in never:
            raise ModelError(f"model.prunable names {name}, but biases and norms are never masked")
    frozen = {name for name, value in params.items() if not value.requires_grad}
    if prunable and names & frozen:
        raise ModelError(f"model.prunable names {min(names & frozen)}, which is frozen (requires_grad is False)")
    names -= never | frozen | _matching(module, dense, "model.dense")
    return tuple(
        Layer(name, tuple(value.shape), biases_beside(params, name), known[name].stacked if name in known else 1)
        for name, value in params.items()
        if name in names
    )


def dense_reasons(module: nn.Module, prunable: Sequence[str] = (), dense: Sequence[str] = ()) -> dict[str, str]:
    """Why each parameter that `prunable_layers` leaves out is left out, by name."""
    params = dict(module.named_parameters())
    layers = {layer.name for layer in prunable_layers(module, prunable, dense)}
    others = {name: value for name, value in params.items() if name not in layers}
    named, norms = _matching(module, dense, "model.dense"), _of_norms(module, params)
    embedded, shared = _embedded(module), _shared(module)

    def reason(name: str, value: nn.Parameter) -> str:
        if name in norms:
            return OF_A_NORM
        if value.dim() < 2:
            return VECTOR
        if not value.requires_grad:
            return FROZEN
        if name in named:
            return NAMED
        if prunable:
            return UNNAMED
        return EMBEDDED if name in embedded else NO_MATRIX

    return {name: reason(name, value) + shared.get(name, "") for name, value in others.items()}


def sparse_reasons(module: nn.Module, prunable: Sequence[str] = (), dense: Sequence[str] = ()) -> dict[str, str]:
    """Why each layer that `prunable_layers` finds is prunable, by name: the class of its layer, or the user's choice.

    A layer of several stacked matrices says so: they share one mask.
    """
    known, shared = _known(module), _shared(module)

    def reason(name: str, stacked: int) -> str:
        several = f", {stacked} matrices in one" if stacked > 1 else ""
        what = "named by model.prunable" if name not in known or prunable else known[name].layer
        return what + several + shared.get(name, "")

    return {layer.name: reason(layer.name, layer.stacked) for layer in prunable_layers(module, prunable, dense)}


def load(module: nn.Module, params: Tensors, buffers: Tensors) -> None:
    """Write named tensors into a module, in place."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(params[name])
        for name, buffer in persistent_buffers(module):
            buffer.copy_(buffers[name])


def persistent_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The buffers that belong to the model's state (BatchNorm's running statistics, say)."""
    kept = module.state_dict(keep_vars=True)
    return [(name, buffer) for name, buffer in module.named_buffers() if name in kept]


def _never_masked(module: nn.Module, params: dict[str, nn.Parameter]) -> set[str]:
    """Biases and other vectors, and whatever belongs to a norm."""
    return {name for name, value in params.items() if value.dim() < 2} | _of_norms(module, params)


def _of_norms(module: nn.Module, params: Iterable[str]) -> set[str]:
    norms = {prefix for prefix, child in module.named_modules() if "Norm" in type(child).__name__}
    return {name for name in params if name.rpartition(".")[0] in norms}


def _known(module: nn.Module) -> dict[str, Matrix]:
    """The matrices by name; of those that layers share, the first."""
    return {matrix.name: matrix for matrix in reversed(matrices(module))}


def _embedded(module: nn.Module) -> set[str]:
    """The parameters in which something is looked up."""
    first = first_names(module)
    layers = [(name, child) for name, child in module.named_modules() if isinstance(child, EMBEDDINGS)]
    return {first[f"{name}.weight" if name else "weight"] for name, _ in layers}


def _shared(module: nn.Module) -> dict[str, str]:
    """What to add about parameters that have several names."""
    others: dict[str, list[str]] = {}
    for name, first in first_names(module).items():
        if name != first:
            others.setdefault(first, []).append(name)
    return {first: f"; shared with {', '.join(names)}" for first, names in others.items()}


def _matching(module: nn.Module, patterns: Sequence[str], option: str) -> set[str]:
    """The parameters that patterns name: by any of their names, by their module's, or by the class of their layer."""
    first, classes = first_names(module), kinds(module)
    found: set[str] = set()
    for pattern in patterns:
        names = {*fnmatch.filter(first, pattern), *fnmatch.filter(first, pattern + ".weight")}
        hits = {first[name] for name in names} | {name for name in classes if pattern in classes[name]}
        if not hits:
            known = ", ".join(name for name, _ in module.named_parameters())
            raise ModelError(f"{option} names {pattern!r}, but the model's parameters are {known}")
        found |= hits
    return found
