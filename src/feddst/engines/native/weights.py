"""Clients' initial weights as the kernels read them; clients that were sent the same model share one."""

import threading
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from feddst import _native
from feddst.clients.client import Beginning
from feddst.core import Broadcast, Masks
from feddst.core.tensors import same_masks
from feddst.engines.native.chain import Chain

Arrays = list[NDArray[np.float32] | None]


class Beginnings:
    """Weights and index structures of one network."""

    def __init__(self, chain: Chain, network: _native.Network) -> None:
        self._chain = chain
        self._network = network
        self._masks: tuple[Masks, _native.Structure] | None = None
        self._broadcast: tuple[Broadcast, _native.Weights] | None = None
        self._lock = threading.Lock()

    def of(self, begun: Beginning) -> _native.Weights:
        """A client's initial weights; the last broadcast's are cached."""
        sent = begun.task.sent.broadcast
        if begun.masks is not sent.masks:
            return self.weights(self.structure(begun.masks), begun.weights)
        if begun.weights is not sent.params:
            with self._lock:
                structure = self._shared(begun.masks)
            return self.weights(structure, begun.weights)
        with self._lock:
            if self._broadcast is None or self._broadcast[0] is not sent:
                self._broadcast = sent, self.weights(self._shared(begun.masks), begun.weights)
            return self._broadcast[1]

    def structure(self, masks: Masks) -> _native.Structure:
        """A structure for these masks."""
        return _native.Structure(self._network, self.bytes_of(masks))

    def bytes_of(self, masks: Masks) -> list[NDArray[np.uint8] | None]:
        """The masks of all layers, as arrays that share their memory where it is contiguous; None: no mask."""
        return [_bytes(masks, name) for name in self._chain.weights]

    def weights(self, structure: _native.Structure, params: Mapping[str, Tensor]) -> _native.Weights:
        """These parameters in the order of a structure."""
        return _native.Weights(structure, *self.arrays(params))

    def arrays(self, tensors: Mapping[str, Tensor]) -> tuple[Arrays, Arrays]:
        """Weights and biases of all layers, as arrays that share the tensors' memory where it is contiguous."""
        weights: Arrays = [_array(tensors[name]) for name in self._chain.weights]
        biases: Arrays = [None if name is None else _array(tensors[name]) for name in self._chain.biases]
        return weights, biases

    def _shared(self, masks: Masks) -> _native.Structure:
        """The structure for masks that several clients use."""
        if self._masks is None or not same_masks(self._masks[0], masks):
            self._masks = masks, self.structure(masks)
        return self._masks[1]


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().contiguous().numpy()


def _bytes(masks: Masks, name: str) -> NDArray[np.uint8] | None:
    return masks[name].contiguous().numpy().view(np.uint8) if name in masks else None
