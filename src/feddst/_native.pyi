"""The compiled kernels, as `native/module.cpp` shows them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Sides = tuple[int, int, int, int, int, int]
"""Rows and columns of a window, its strides, its paddings."""

Description = tuple[str, int, Sides, bool, bool]
"""A layer: its kind, outputs, window, whether it has a bias, and whether an average counts padding."""

_Floats = NDArray[np.float32]
_Doubles = NDArray[np.float64]
_Integers = NDArray[np.int64]
_Bytes = NDArray[np.uint8]
_Targets = _Integers | _Floats
"""Class labels, [images], for cross-entropy; for other losses a number for each output, [images, outputs]."""

def supported() -> list[str]: ...
def add_exact(values: _Floats, scale: float, coarse: _Doubles, fine: _Doubles, at: _Integers | None = None) -> None: ...

class Network:
    def __init__(self, shape: tuple[int, int, int], layers: Sequence[Description]) -> None: ...
    @property
    def outputs(self) -> int: ...
    @property
    def sizes(self) -> list[int]: ...

class Structure:
    def __init__(
        self, network: Network, masks: Sequence[_Bytes | None], dense: Sequence[bool] | None = None
    ) -> None: ...
    @property
    def dense(self) -> list[bool]: ...
    @property
    def active(self) -> list[int]: ...

class Weights:
    def __init__(
        self, structure: Structure, weights: Sequence[_Floats | None], biases: Sequence[_Floats | None]
    ) -> None: ...
    @property
    def structure(self) -> Structure: ...

class Session:
    def __init__(self, network: Network, isa: str) -> None: ...
    def load(self, weights: Weights, slots: int = 1) -> None: ...
    def load_slot(self, slot: int, weights: Sequence[_Floats | None], biases: Sequence[_Floats | None]) -> None: ...
    def store(
        self, weights: Sequence[_Floats | None], biases: Sequence[_Floats | None], slot: int | None = None
    ) -> None: ...
    def set_trained(self, weights: Sequence[bool], biases: Sequence[bool]) -> None: ...
    def set_anchor(self, anchor: Weights) -> None: ...
    def packed(self, masks: Sequence[_Bytes | None] | None = None) -> _Floats: ...
    def stop(self) -> None: ...
    def train(
        self,
        inputs: _Floats,
        targets: _Targets,
        order: _Integers,
        sizes: Sequence[int],
        rate: float,
        momentum: float,
        decay: float,
        proximal: float,
        loss: str = "cross-entropy",
        adam: tuple[float, float, float] | None = None,
        taken: int = 0,
        decoupled: bool = False,
    ) -> list[float]: ...
    def mean_gradient(
        self,
        inputs: _Floats,
        targets: _Targets,
        order: _Integers,
        temperature: float,
        weights: Sequence[_Floats | None],
        biases: Sequence[_Floats | None],
        loss: str = "cross-entropy",
    ) -> None: ...
    def readjust(
        self,
        inputs: _Floats,
        targets: _Targets,
        order: _Integers,
        moves: Sequence[tuple[int, int] | None],
        masks: Sequence[_Bytes | None],
        loss: str = "cross-entropy",
    ) -> None: ...
    def scores(self, inputs: _Floats, outputs: _Floats) -> None: ...
