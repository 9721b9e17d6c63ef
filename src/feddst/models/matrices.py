"""Which parameters are weights that may be pruned: the one place where that is decided.

Weights in a sum of products with an input may be pruned: those of convolutions and linear layers, transposed ones too;
of recurrent layers, from the input and from the previous state, and of LSTM's projection; of attention, from queries,
keys and values, and to its output. Everything else stays dense: biases and other vectors, all parameters of norms,
embeddings (a word is looked up, not multiplied), also where an output layer shares them, and parameters of modules that
are not known here. A user may choose otherwise (`model.prunable`, `model.dense`).

PyTorch stacks some matrices in one tensor: the gates of an LSTM (4) or a GRU (3), and attention's matrices for queries,
keys and values (3). They share one mask and one budget, so a weight of one may be exchanged for a weight of another.
The size of the budget (`er`, `erk`) follows from the shape of a single matrix, as if each were a layer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

_PLAIN = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.Linear,
)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)
_GATES = {nn.LSTM: 4, nn.LSTMCell: 4, nn.GRU: 3, nn.GRUCell: 3}
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_ATTENTION = {"in_proj_weight": 3, "q_proj_weight": 1, "k_proj_weight": 1, "v_proj_weight": 1, "out_proj.weight": 1}
"""The weights of `nn.MultiheadAttention`, and how many matrices each of them is."""


@dataclass(frozen=True)
class Matrix:
    """A parameter that may be pruned: the one called `own` in the module `owner`, a `layer`, which uses it.

    It consists of `stacked` matrices. `name` is the parameter's name in the whole model: where layers share it, that of
    the first.
    """

    owner: str
    own: str
    layer: str
    name: str
    stacked: int = 1


def matrices(module: nn.Module) -> list[Matrix]:
    """The weights that may be pruned, in the module's order; a shared one occurs for each layer that uses it."""
    found: dict[str, Matrix] = {}
    first = first_names(module)
    for owner, child in module.named_modules():
        for own, stacked in _of(child):
            name = f"{owner}.{own}" if owner else own
            # Attention comes before its output layer, which it never calls.
            found.setdefault(name, Matrix(owner, own, type(child).__name__, first[name], stacked))
    return list(found.values())


def first_names(module: nn.Module) -> dict[str, str]:
    """Each name of each parameter, and the first of its names: the one in `named_parameters`."""
    first: dict[int, str] = {}
    every = module.named_parameters(remove_duplicate=False)
    return {name: first.setdefault(id(value), name) for name, value in every}


def kinds(module: nn.Module) -> dict[str, set[str]]:
    """The classes of the layers that have each parameter, by its first name; attention has its output layer's too."""
    first, found = first_names(module), dict[str, set[str]]()
    seen: set[str] = set()
    for owner, child in module.named_modules(remove_duplicate=False):
        classes = {kind.__name__ for kind in type(child).__mro__ if issubclass(kind, nn.Module) and kind != nn.Module}
        whole = isinstance(child, nn.MultiheadAttention)
        for name, _ in child.named_parameters(owner, recurse=whole, remove_duplicate=False):
            if name not in seen:
                seen.add(name)
                found.setdefault(first[name], set()).update(classes)
    return found


def _of(layer: nn.Module) -> Iterator[tuple[str, int]]:
    """The names of a layer's own matrices, and how many each of them is."""
    if isinstance(layer, _PLAIN):
        yield "weight", 1
    elif isinstance(layer, _RECURRENT):
        gates = next((count for kind, count in _GATES.items() if isinstance(layer, kind)), 1)
        for name, value in layer.named_parameters(recurse=False):
            if name.startswith("weight_") and value.dim() == 2:
                yield name, 1 if name.startswith("weight_hr") else gates
    elif isinstance(layer, nn.MultiheadAttention):
        present = dict(layer.named_parameters())
        yield from ((name, stacked) for name, stacked in _ATTENTION.items() if name in present)
