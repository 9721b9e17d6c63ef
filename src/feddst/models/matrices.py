"""Which parameters are weights that may be pruned: the one place where that is decided.

Weights in a sum of products with an input may be pruned: those of convolutions and linear layers, transposed ones too;
of recurrent layers, from the input and from the previous state, and of LSTM's projection; of attention, from queries,
keys and values, and to its output. Everything else stays dense: biases and other vectors, all parameters of norms,
embeddings (a word is looked up, not multiplied; so is one that an output layer shares), and parameters of modules that
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
_ATTENTION = {"in_proj_weight": 3, "q_proj_weight": 1, "k_proj_weight": 1, "v_proj_weight": 1, "out_proj.weight": 1}
"""The weights of `nn.MultiheadAttention`, and how many matrices each of them is."""


@dataclass(frozen=True)
class Matrix:
    """A parameter in a sum of products with an input: the one called `own` in the module `owner`, which uses it.

    `name` is the parameter's in the whole model, under which layers that share it find each other. It consists of
    `stacked` matrices.
    """

    owner: str
    own: str
    name: str
    stacked: int = 1


def matrices(module: nn.Module) -> list[Matrix]:
    """The weights that are multiplied, in the module's order; one that layers share occurs for each of them."""
    known = parameter_names(module)
    found: dict[str, Matrix] = {}
    for owner, child in module.named_modules():
        for own, stacked in _of(child):
            place = f"{owner}.{own}" if owner else own
            # Attention comes before its output layer, which it never calls.
            found.setdefault(place, Matrix(owner, own, known[place], stacked))
    return list(found.values())


def parameter_names(module: nn.Module) -> dict[str, str]:
    """The name under which each parameter is kept, by all of its names: a shared one has a name in each layer."""
    kept = {id(value): name for name, value in module.named_parameters()}
    return {name: kept[id(value)] for name, value in module.named_parameters(remove_duplicate=False)}


def embedded(module: nn.Module) -> set[str]:
    """The names of the weights that are looked up, even if other layers share them."""
    known = parameter_names(module)
    owners = [name for name, child in module.named_modules() if isinstance(child, nn.Embedding | nn.EmbeddingBag)]
    return {known[f"{owner}.weight" if owner else "weight"] for owner in owners}


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
