"""How many clients of a round hold each weight, where some have masks of their own."""

import torch
from torch import Tensor

from feddst.core.tensors import Masks, as_bytes
from feddst.core.update import Stack


class Holders:
    """Counts the clients that hold each weight of the masked layers; `masks` are the broadcast's.

    For clients that still have these masks, one count is enough. Once a client has masks of its own, each weight has
    an int32 count.
    """

    def __init__(self, masks: Masks) -> None:
        self._sent = masks
        self._as_sent = 0
        self._own = 0
        self._counts: dict[str, Tensor] = {}
        self._with_mask: dict[str, int] = {}

    def add(self, masks: Masks | None) -> None:
        """Count one client with these masks; None: the broadcast's. It holds all of a layer without a mask."""
        if masks is None:
            self._as_sent += 1
            return
        self._own += 1
        for name, mask in masks.items():
            self._count(name, as_bytes(mask).reshape(-1), 1)

    def add_stack(self, stack: Stack) -> None:
        """Count all clients of a stack, if it has their masked tensors; other stacks are ignored."""
        masked = {key[1]: place for key, place in stack.places.items() if place.masked}
        if masked and stack.held is None:
            self._as_sent += len(stack.weights)
        elif masked and stack.held is not None:
            self._own += len(stack.weights)
            for name, place in masked.items():
                self._count(name, stack.held[:, place.columns].sum(0), len(stack.weights))

    def merge(self, other: "Holders") -> None:
        """Add the counts of other clients of the round."""
        if other._sent is self._sent:
            self._as_sent += other._as_sent
        else:
            for name, mask in other._sent.items():
                self._count(name, as_bytes(mask).reshape(-1).int() * other._as_sent, other._as_sent)
            self._own += other._as_sent
        self._own += other._own
        for name, counts in other._counts.items():
            self._count(name, counts, other._with_mask[name])

    def apart(self) -> dict[str, float]:
        """By layer, the share of a client's weights that another client does not hold, over all pairs of clients.

        Empty if no client has masks of its own, or if there is no pair.
        """
        clients = self._as_sent + self._own
        if not self._own or clients < 2:
            return {}
        found: dict[str, float] = {}
        for name in {**self._sent, **self._counts}:
            # How many weights 0, 1, 2, … clients hold: few numbers, which add up exactly.
            weights: list[int] = torch.bincount(self._held_by(name)).tolist()
            held = sum(by * count for by, count in enumerate(weights))
            lacking = sum(by * (clients - by) * count for by, count in enumerate(weights))
            if held:
                found[name] = lacking / ((clients - 1) * held)
        return found

    def _count(self, name: str, holders: Tensor, clients: int) -> None:
        if name not in self._counts:
            self._counts[name] = holders.new_zeros(holders.shape, dtype=torch.int32)
            self._with_mask[name] = 0
        self._counts[name] += holders
        self._with_mask[name] += clients

    def _held_by(self, name: str) -> Tensor:
        """How many clients hold each weight of a layer, int32 [n]."""
        whole = self._own - self._with_mask.get(name, 0)
        if name not in self._sent:
            return self._counts[name] + (self._as_sent + whole)
        sent = as_bytes(self._sent[name]).reshape(-1).int() * self._as_sent + whole
        return sent + self._counts[name] if name in self._counts else sent
