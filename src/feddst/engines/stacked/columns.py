"""The columns of clients' weights in the row of a model."""

import weakref

import torch
from torch import Tensor

from feddst.core import Positions, positions_of
from feddst.engines.stacked.flat import Flat
from feddst.wire import Layout
from feddst.wire.masks import decode_bitmap


class Columns:
    """Finds the columns of the weights that updates hold, int64 [n], on a device, in the order of their layout.

    Those under the masks of a bitmap section are cached for as long as that bitmap exists.
    """

    def __init__(self, flat: Flat, device: torch.device) -> None:
        self.flat = flat
        self.device = device
        self._known: dict[tuple[int, int], Tensor] = {}

    def at(self, positions: Positions, layout: Layout) -> Tensor:
        """Under masks that keep the weights at these positions."""
        found = [torch.empty(0, dtype=torch.int64, device=self.device)]
        for field in layout.params:
            places = positions.get(field.name)
            start = self.flat.starts[field.name]
            if places is None:
                found.append(torch.arange(start, start + field.size, device=self.device))
            else:
                found.append(places.to(self.device) + start)
        return torch.cat(found)

    def under(self, bitmap: Tensor, layout: Layout, positions: Positions | None = None) -> Tensor:
        """Under the masks of a bitmap section, uint8 [bytes]; `positions` of their weights, if known."""
        key = (id(bitmap) if len(bitmap) else 0, layout.fingerprint)
        if key not in self._known:
            if positions is None:
                positions = positions_of(decode_bitmap(bitmap.numpy().tobytes(), layout) or {})
            self._known[key] = self.at(positions, layout)
            if len(bitmap):
                weakref.finalize(bitmap, self._known.pop, key, None).atexit = False
        return self._known[key]
