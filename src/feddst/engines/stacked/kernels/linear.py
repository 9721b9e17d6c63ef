"""A linear layer of M models."""

import torch
from torch import Tensor

from feddst.engines.stacked.kernels.batch import Batch, Planes, Slopes, ceiling, power
from feddst.engines.stacked.kernels.descent import Descent
from feddst.engines.stacked.kernels.multiplying import finish, multiply, multiply_back

_DEPTH = 64
_PIECE = 1024
"""Features of a piece of the sum; several pieces keep more of the device busy, and are added up later."""
_FINISHED = 512


class Linear:
    """Its weights begin at `weight` of a model's row, its biases at `bias`."""

    def __init__(
        self, batch: Batch, source: Planes, outputs: int, weight: int, bias: int | None, *, relu: bool
    ) -> None:
        self.batch, self.weight, self.bias, self.relu = batch, weight, bias, relu
        self.features = source.channels * source.height * source.width
        self.result = Planes(outputs, 1, 1)
        self._rows, self._columns = min(64, power(outputs, 16)), min(64, power(batch.images, 16))
        self._pieces = ceiling(self.features, _PIECE)
        self._part = torch.empty(self._pieces * batch.size(self.result), device=batch.device)

    @property
    def stop(self) -> int:
        """Where its weights end."""
        return self.weight + self.features * self.result.channels

    def forward(self, theta: Tensor, x: Tensor, y: Tensor) -> None:
        batch, outputs, whole = self.batch, self.result.channels, self._pieces == 1
        tiles = ceiling(outputs, self._rows) * ceiling(batch.images, self._columns)
        multiply[(tiles, batch.models, self._pieces)](
            theta,
            self.weight,
            self.bias or 0,
            batch.row,
            x,
            y if whole else self._part,
            batch.models,
            outputs,
            self.features,
            batch.images,
            self.bias is not None and whole,
            self.relu and whole,
            batch.precision,
            min(_PIECE, ceiling(self.features, _DEPTH) * _DEPTH),
            self._rows,
            self._columns,
            _DEPTH,
            num_warps=2,
            num_stages=3,
        )
        if not whole:
            finish[(ceiling(outputs * batch.images, _FINISHED), batch.models)](
                self._part,
                theta,
                self.bias or 0,
                batch.row,
                y,
                batch.models,
                self._pieces,
                outputs,
                batch.images,
                self.bias is not None,
                self.relu,
                _FINISHED,
            )

    def backward(
        self, theta: Tensor, x: Tensor, slopes: Slopes, into: Tensor, back: Slopes | None, alive: bool
    ) -> None:
        unused = Descent(x, x, x, 0.0, 0.0, 0.0)
        self._backward(theta, x, slopes, into, back, alive, unused, moving=False)

    def descend(
        self,
        theta: Tensor,
        x: Tensor,
        slopes: Slopes,
        into: Tensor,
        back: Slopes | None,
        alive: bool,
        descent: Descent,
    ) -> None:
        """Like `backward`, but the weights make their step at once, and the slopes in them are not written."""
        self._backward(theta, x, slopes, into, back, alive, descent, moving=True)

    def _backward(
        self,
        theta: Tensor,
        x: Tensor,
        slopes: Slopes,
        into: Tensor,
        back: Slopes | None,
        alive: bool,
        descent: Descent,
        *,
        moving: bool,
    ) -> None:
        batch = self.batch
        rows, block, warps = self._tile(moving)
        multiply_back[(ceiling(self.features, block), batch.models)](
            theta,
            self.weight,
            self.bias or 0,
            batch.row,
            x,
            slopes.values,
            into,
            (slopes if back is None else back).values,
            *descent.arguments,
            descent.near,
            moving,
            self.result.channels,
            self.features,
            batch.images,
            self.bias is not None,
            back is not None,
            alive,
            batch.precision,
            rows,
            self._columns,
            block,
            num_warps=warps,
            num_stages=1,
        )

    def _tile(self, moving: bool) -> tuple[int, int, int]:
        """Outputs and features per tile of the backward pass, and its warps."""
        if self.batch.exact:
            return self._rows, 64, 4
        if not moving:
            return self._rows, 128, 2
        if self.result.channels <= 64:
            return self._rows, 64, 2
        return 32, 128 if self._columns == 16 else 64, 2
