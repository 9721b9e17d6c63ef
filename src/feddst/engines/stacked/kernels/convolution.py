"""A convolution with stride 1 of M models."""

import torch
from torch import Tensor

from feddst.engines.stacked.kernels.batch import Batch, Planes, Slopes, ceiling, power
from feddst.engines.stacked.kernels.convolving import convolve, expand, fold, weigh
from feddst.engines.stacked.kernels.grouping import Grouping, Tile, covering

_EXPANDED = (16, 128)
_FOLDED = 256
_MOST_PIECES = 8
"""Pieces of the pixels in a sum of weights' slopes: enough to keep the device busy, few enough to add up."""
_LEAST_STEPS = 32
_TAPS = 64
"""Taps are a multiple of this when weights' slopes are summed."""


class Convolution:
    """Its weights begin at `weight` of a model's row, its biases at `bias`.

    padded: its slopes come in planes with zeros around them (`slopes`), so no bounds are checked.
    """

    def __init__(
        self,
        batch: Batch,
        source: Planes,
        outputs: int,
        window: tuple[int, int],
        weight: int,
        bias: int | None,
        *,
        relu: bool,
        padded: bool,
    ) -> None:
        self.batch, self.source, self.window, self.relu = batch, source, window, relu
        self.weight, self.bias, self.padded = weight, bias, padded
        self.result = Planes(outputs, source.height - window[0] + 1, source.width - window[1] + 1)
        self._ahead = Product(self, turned=False)
        self._back = Product(self, turned=True)
        self._weighing = Weighing(self)

    def slopes(self) -> Slopes:
        """Memory for its slopes, zero everywhere."""
        planes = covering(self.source, self._back.grouping)._replace(channels=self.result.channels)
        before = ((self.window[0] - 1) * planes.width + self.window[1] - 1) * self.batch.images
        room = torch.zeros(before + self.batch.size(planes), device=self.batch.device)
        return Slopes(room[before:], planes)

    def forward(self, theta: Tensor, x: Tensor, y: Tensor) -> None:
        self._ahead(theta, x, self.source, y, y, alive=False)

    def backward(
        self, theta: Tensor, x: Tensor, slopes: Slopes, into: Tensor, back: Slopes | None, alive: bool
    ) -> None:
        self._weighing(x, slopes, into)
        if back is not None:
            self._back(theta, slopes.values, slopes.planes, back.values, x, alive=alive)


class Product:
    """A convolution's forward or (turned) backward pass."""

    def __init__(self, layer: Convolution, *, turned: bool) -> None:
        self.layer, self.turned, batch = layer, turned, layer.batch
        source, self.result = (layer.result, layer.source) if turned else (layer.source, layer.result)
        padded = turned and layer.padded
        self.grouping = grouping = Grouping.best(source.channels, self.result, layer.window, padded=padded)
        ragged = self.result.height % grouping.tall or self.result.width % grouping.broad
        self.clipped = not padded and bool(turned or ragged)
        self.tile = _product_tile(grouping.rows, batch)
        self.columns = ceiling(grouping.taps, self.tile.depth) * self.tile.depth
        self.shifted = torch.empty(batch.models * grouping.rows * self.columns, device=batch.device)

    def __call__(self, theta: Tensor, x: Tensor, source: Planes, y: Tensor, forward: Tensor, *, alive: bool) -> None:
        self._expand(theta, source.channels)
        layer, batch, tile, grouping = self.layer, self.layer.batch, self.tile, self.grouping
        high, wide = layer.window
        convolve[(ceiling(grouping.groups(self.result) * batch.images, tile.block), batch.models)](
            x,
            self.shifted,
            theta,
            layer.bias or 0,
            batch.row,
            y,
            forward,
            *source,
            *self.result,
            high,
            wide,
            high - 1 if self.turned else 0,
            wide - 1 if self.turned else 0,
            grouping.tall,
            grouping.broad,
            batch.images,
            self.clipped,
            layer.bias is not None and not self.turned,
            layer.relu and not self.turned,
            alive,
            batch.precision,
            grouping.rows,
            self.columns,
            tile.block,
            tile.depth,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )

    def _expand(self, theta: Tensor, inputs: int) -> None:
        layer, grouping = self.layer, self.grouping
        lines, block = _EXPANDED
        expand[(ceiling(self.columns, block), layer.batch.models, ceiling(grouping.rows, lines))](
            theta,
            layer.weight,
            layer.batch.row,
            self.shifted,
            self.result.channels,
            inputs,
            *layer.window,
            grouping.tall,
            grouping.broad,
            self.turned,
            grouping.rows,
            self.columns,
            lines,
            block,
        )


class Weighing:
    """A convolution's slopes in its weights and biases."""

    def __init__(self, layer: Convolution) -> None:
        self.layer, batch = layer, layer.batch
        self.grouping = Grouping.best(layer.source.channels, layer.result, layer.window, piece=_TAPS)
        self.tile = _weighing_tile(self.grouping, batch)
        self.columns = ceiling(self.grouping.taps + 1, self.tile.block) * self.tile.block
        steps = ceiling(self.grouping.groups(layer.result) * batch.images, self.tile.depth)
        self.pieces = min(_MOST_PIECES, ceiling(steps, _LEAST_STEPS))
        self.steps = ceiling(steps, self.pieces)
        self.part = torch.empty(self.pieces * batch.models * self.grouping.rows * self.columns, device=batch.device)

    def __call__(self, x: Tensor, slopes: Slopes, into: Tensor) -> None:
        layer, batch, tile, grouping = self.layer, self.layer.batch, self.tile, self.grouping
        weigh[(self.columns // tile.block, batch.models, self.pieces)](
            x,
            slopes.values,
            self.part,
            batch.models,
            *layer.source,
            *slopes.planes,
            *layer.window,
            grouping.tall,
            grouping.broad,
            batch.images,
            batch.precision,
            self.pieces,
            self.steps,
            grouping.rows,
            self.columns,
            tile.block,
            tile.depth,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
        self._fold(into)

    def _fold(self, into: Tensor) -> None:
        layer, batch, grouping = self.layer, self.layer.batch, self.grouping
        outputs, inputs, (high, wide) = layer.result.channels, layer.source.channels, layer.window
        fold[(ceiling(outputs * (inputs * high * wide + 1), _FOLDED), batch.models)](
            self.part,
            into,
            layer.weight,
            layer.bias or 0,
            batch.row,
            batch.models,
            self.pieces,
            inputs,
            outputs,
            high,
            wide,
            grouping.tall,
            grouping.broad,
            layer.bias is not None,
            grouping.rows,
            self.columns,
            _FOLDED,
        )


def _product_tile(rows: int, batch: Batch) -> Tile:
    if batch.exact:
        return Tile(64, 16, 4, 2)
    return Tile(128, 16, 2, 3) if rows == 64 else Tile(256, 16, 4, 3)


def _weighing_tile(grouping: Grouping, batch: Batch) -> Tile:
    block = min(128, power(grouping.taps + 1, 16))
    return Tile(block, 16, 4, 2) if batch.exact else Tile(block, 32, 4, 3)
