"""What a run's network consists of before training: each parameter, whether it is sparse, and what it costs to use."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from feddst.core import Layer, ServerState, count_active, objective_of
from feddst.core.batches import Batch, form_of, tensors_of
from feddst.core.model import LayerTimes
from feddst.data import Dataset, Federation, load
from feddst.data.adapters import Source
from feddst.data.sizes import KNOWN, Sizes
from feddst.engines.explain import explain_engine
from feddst.methods import Method, Sprout
from feddst.models import (
    ModuleSource,
    check_fit,
    dense_reasons,
    forward_flops,
    initial_model,
    make_module,
    multiply_adds,
    sparse_reasons,
)
from feddst.notebook import aligned, table_html
from feddst.options import updated
from feddst.runtime.anatomy_table import closing, shape_words, table
from feddst.runtime.config import RunConfig, make_method, with_pins
from feddst.runtime.networks import built_in, built_in_name
from feddst.runtime.session import checked_types


@dataclass(frozen=True)
class Part:
    """A parameter; `kept` counts its values that are not masked, `budget` how many the method means to keep.

    `dense` says why it is not sparse, and is empty if it is; then `why` says why it may be. `multiply_adds` are those
    of one forward pass for one input without a mask; None where they are not counted, as for biases.
    """

    name: str
    shape: tuple[int, ...]
    size: int
    kept: int
    dense: str
    multiply_adds: int | None
    budget: int | None = None
    why: str = ""

    @property
    def density(self) -> float:
        """The share of the values that is kept."""
        return self.kept / self.size if self.size else 1.0

    @property
    def sparse_multiply_adds(self) -> int | None:
        """The multiply-adds with the values that are kept."""
        return None if self.multiply_adds is None else round(self.multiply_adds * self.density)


@dataclass(frozen=True, repr=False)
class Anatomy:
    """A network and its parts. `notes` say what its method will still change.

    `engine` is the one that trains it; if it is not the one that was asked for, `reasons` say why.
    """

    network: str
    sizes: Sizes
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()
    title: str = ""
    engine: str = ""
    reasons: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n".join([self.title, *aligned(table(self)), *closing(self)])

    def _repr_html_(self) -> str:
        return table_html(table(self), self.title, closing(self))

    @property
    def size(self) -> int:
        """Weights and biases."""
        return sum(part.size for part in self.parts)

    @property
    def kept(self) -> int:
        """Weights and biases that are not masked."""
        return sum(part.kept for part in self.parts)

    @property
    def budget(self) -> int | None:
        """How many weights the method means to keep; None if it has no budgets."""
        budgets = [part.budget for part in self.parts if part.budget is not None]
        return sum(budgets) if budgets else None

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of one forward pass for one input, without masks."""
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


def anatomy_of(
    config: RunConfig, model: ModuleSource | None = None, data: Dataset | Federation | None = None
) -> Anatomy:
    """The network of a run before its first round. Nothing is trained, measured or downloaded for this."""
    config = with_pins(config)
    wanted = config.model
    dataset = _dataset(config, data)
    example = dataset.example()
    module = make_module(built_in(config, dataset) if model is None else model, config.seed)
    check_fit(module, example, None, objective_of(config.local), dataset.num_classes)
    initial = initial_model(module, prunable=wanted.prunable, dense=wanted.dense)
    method = make_method(config)
    # PruneFL would measure times for its later masks: the first does not depend on them.
    equal = LayerTimes({layer.name: 1.0 for layer in initial.layers})
    state = method.init(replace(initial, layer_times=lambda basis: equal), config.seed)
    active = count_active(state.masks)
    reasons = dense_reasons(module, wanted.prunable, wanted.dense) | _unmasked(method, state, initial.layers)
    why = sparse_reasons(module, wanted.prunable, wanted.dense)
    counts = multiply_adds(module, example)
    parts = tuple(
        Part(
            name,
            tuple(value.shape),
            value.numel(),
            active.get(name, value.numel()),
            reasons.get(name, ""),
            counts.get(name),
            state.budgets.get(name),
            why.get(name, ""),
        )
        for name, value in initial.params.items()
    )
    name = built_in_name(config, dataset) if model is None else type(module).__name__
    task = f"{dataset.num_classes} classes" if dataset.classes else f"targets {form_of(dataset.train.some_targets)}"
    title = (
        f"{name}, as {config.method} begins with it (seed {config.seed}): inputs {_inputs(example)}, "
        f"{task} ({config.data.dataset if data is None else dataset.name})"
    )
    plan = method.plan(state, 0)
    engine, because = explain_engine(config.engine, module, dataset, plan, config.aggregator.kind)
    notes = tuple(_notes(method, state, initial.layers))
    return Anatomy(name, Sizes(dataset.input_shape, dataset.num_classes), parts, notes, title, engine, tuple(because))


def describe_model(
    config: RunConfig | None = None,
    *,
    model: ModuleSource | None = None,
    data: Dataset | Federation | tuple[Source, Source] | None = None,
) -> Anatomy:
    """The network that `feddst.run` would train with the same arguments, parameter by parameter; nothing is trained.

    `print` shows a table: what each parameter keeps and costs, whether it is sparse and why, and the engine that will
    train it. `model` and `data` are as for `run`; your own `data` takes the place of what `config.data` names.
    """
    config, found = checked_types(config, data)
    if isinstance(found, Federation):
        config = updated(config, {"data.clients": found.num_clients})
    config.check()
    return anatomy_of(config, model, found)


def _dataset(config: RunConfig, data: Dataset | Federation | None) -> Dataset:
    """The data, or zeros of the same sizes in place of what need not be loaded."""
    if data is not None:
        return data.dataset if isinstance(data, Federation) else data
    sizes = KNOWN.get(config.data.dataset)
    if sizes is None or (config.data.dataset == "mnist" and config.data.root):
        return load(config.data.unaugmented)
    images, labels = torch.zeros(1, *sizes.shape), torch.zeros(1, dtype=torch.int64)
    classes = tuple(str(label) for label in range(sizes.classes))
    return Dataset.from_arrays((images, labels), (images, labels), classes=classes)


def _inputs(example: Batch) -> str:
    """The shapes of a network's inputs in words, several by their names or in their order."""
    shapes = [shape_words(tuple(value.shape[1:])) for value in tensors_of(example)]
    if isinstance(example, dict):
        shapes = [f"{name} {shape}" for name, shape in zip(example, shapes, strict=True)]
    return " and ".join(shapes)


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
