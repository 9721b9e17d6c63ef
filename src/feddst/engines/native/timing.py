"""What a training step costs on the sparse kernels: a constant, and a time for each active weight of a layer.

Each prunable layer in turn gets several densities while the others keep one, and steps are timed on one core. The time
of a step is modelled as T + Σ t·(active weights), fitted by least squares. A layer's kernels for high densities are
left out: their time does not depend on the number of active weights.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from feddst import _native
from feddst.core.model import LayerTimes
from feddst.engines.native.chain import Chain
from feddst.engines.native.library import chosen_isa
from feddst.engines.native.weights import Beginnings
from feddst.stopwatch import timed

DENSITIES = (0.05, 0.35, 0.65, 1.0)
"""A layer's timed densities."""

AROUND = 0.05
"""The other layers' density meanwhile."""

LEAST = 0.01
"""No weight costs less than this share of the mean: too quick to measure is not free."""

_REPEATS = 20


def native_layer_times(
    module: nn.Module, chain: Chain, example: Tensor, batch: int, names: Sequence[str]
) -> LayerTimes:
    """The times of one step on `batch` images; example: [1, *input shape], names: of the prunable layers' weights."""
    params = {name: value.detach() for name, value in module.named_parameters()}
    counts: list[list[int]] = []
    seconds: list[float] = []
    for one in names:
        for share in DENSITIES:
            shares = {name: share if name == one else AROUND for name in names}
            masks = {name: _mask(params[name], max(1, round(shares[name] * params[name].numel()))) for name in names}
            counts.append([int(mask.sum()) for mask in masks.values()])
            seconds.append(_seconds(chain, params, masks, example, batch))
    return fitted(names, np.array(counts), np.array(seconds))


def fitted(names: Sequence[str], counts: NDArray[np.int64], seconds: NDArray[np.float64]) -> LayerTimes:
    """The best fit to these measurements, none below 0; counts: active weights, [measurements, layers]."""
    most = counts.max(axis=0)
    design = np.column_stack([np.ones(len(counts)), counts / most])
    constant, *slopes = np.linalg.lstsq(design, seconds, rcond=None)[0].tolist()
    each = [max(0.0, slope) for slope in slopes]
    least = LEAST * (sum(each) or float(seconds.mean())) / int(most.sum())
    per_weight = {name: max(t / int(n), least) for name, t, n in zip(names, each, most, strict=True)}
    return LayerTimes(per_weight, max(0.0, constant))


def _mask(weights: Tensor, count: int) -> Tensor:
    """A mask with `count` random weights."""
    mask = torch.zeros(weights.numel(), dtype=torch.bool)
    draws = torch.Generator().manual_seed(0)
    mask[torch.randperm(len(mask), generator=draws)[:count]] = True
    return mask.view(weights.shape)


def _seconds(chain: Chain, params: dict[str, Tensor], masks: dict[str, Tensor], example: Tensor, batch: int) -> float:
    """The shortest time of a step that changes nothing: other work may run here too."""
    network = _native.Network(chain.shape, chain.layers)
    beginnings, session = Beginnings(chain, network), _native.Session(network, chosen_isa())
    structure = _native.Structure(network, beginnings.bytes_of(masks), [False] * len(chain.weights))
    held = {name: value * masks[name] if name in masks else value for name, value in params.items()}
    session.load(beginnings.weights(structure, held))
    session.set_trained([True] * len(chain.weights), [True] * len(chain.biases))
    inputs = example.expand(batch, *example.shape[1:]).to(torch.float32).contiguous().numpy()
    labels, order = np.zeros(batch, dtype=np.int64), np.arange(batch)
    found = timed(lambda: session.train(inputs, labels, order, [batch], 0.0, 0.0, 0.0, 0.0), _REPEATS).shortest
    session.stop()
    return found
