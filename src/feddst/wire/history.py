"""Which masks clients hold, as far as the server remembers: the last few, and which client received which.

A mask is kept as its bitmap section, and named by that section's checksum: both ends know its name without
agreeing on one first.
"""

import zlib
from collections.abc import Mapping
from functools import lru_cache

NO_MASK = 0
"""The name that stands for no mask."""


@lru_cache(maxsize=8)
def mask_name(bitmap: bytes) -> int:
    """A mask's name on the wire: the CRC-32 of its bitmap section. Most clients of a round are sent the same mask."""
    return zlib.crc32(bitmap) if bitmap else NO_MASK


class MaskHistory:
    """Remembers at most `bound` masks. A client whose mask has been forgotten counts as holding none."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._bitmaps: dict[int, bytes] = {}
        self._clients: dict[int, int] = {}

    def held_by(self, client: int) -> bytes:
        """The bitmap section of the mask that a client received last; empty if that is not known."""
        return self._bitmaps[self._clients[client]] if client in self._clients else b""

    def received(self, client: int, bitmap: bytes) -> None:
        """Record that a client has received this mask."""
        self.forget(client)
        if bitmap and self._bound:
            name = mask_name(bitmap)
            self._bitmaps.pop(name, None)
            self._bitmaps[name] = bitmap
            self._clients[client] = name
            if len(self._bitmaps) > self._bound:
                self._drop(next(iter(self._bitmaps)))

    def forget(self, client: int) -> None:
        """Forget which mask a client holds."""
        self._clients.pop(client, None)

    def as_parts(self) -> tuple[Mapping[int, bytes], Mapping[int, int]]:
        """The masks by name, the oldest first, and the name of the one each client holds: for a checkpoint."""
        return dict(self._bitmaps), dict(self._clients)

    def restore(self, bitmaps: Mapping[int, bytes], clients: Mapping[int, int]) -> None:
        """Continue from what `as_parts` gave."""
        self._bitmaps, self._clients = dict(bitmaps), dict(clients)

    def _drop(self, name: int) -> None:
        del self._bitmaps[name]
        self._clients = {client: held for client, held in self._clients.items() if held != name}
