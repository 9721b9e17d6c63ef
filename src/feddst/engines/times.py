"""The time of a training step on a run's engine."""

from collections.abc import Sequence

from torch import Tensor, nn

from feddst.core.batches import Batch
from feddst.core.model import Layer, LayerTimes, TimeBasis
from feddst.engines.native.chain import Chain, read_chain
from feddst.engines.native.library import why_missing
from feddst.engines.select import EngineConfig
from feddst.errors import UnsupportedModelError
from feddst.models import timing


def layer_times(
    config: EngineConfig, module: nn.Module, example: Batch, batch: int, layers: Sequence[Layer], basis: TimeBasis
) -> LayerTimes:
    """The times of one step on `batch` images, measured on the sparse kernels if these train, else in PyTorch."""
    chain = _chain(config, module, example) if basis == "measured" else None
    if chain is None:
        return timing.layer_times(module, example, batch, layers, basis)
    assert isinstance(example, Tensor)
    from feddst.engines.native.timing import native_layer_times  # cannot be imported where there are no kernels

    return native_layer_times(module, chain, example, batch, [layer.name for layer in layers])


def _chain(config: EngineConfig, module: nn.Module, example: Batch) -> Chain | None:
    """The layers if the compiled kernels will train them, else None."""
    if (
        not isinstance(example, Tensor)
        or config.kind != "native"
        or config.torch_device().type != "cpu"
        or why_missing()
    ):
        return None
    try:
        return read_chain(module, tuple(example.shape[1:]))
    except UnsupportedModelError:
        return None
