"""What a round's clients are sent: by default the same, but a method may send each client something else."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from torch import Tensor

from feddst.core import Broadcast, ServerState, masked
from feddst.errors import TrainingError, WireError
from feddst.methods import Method
from feddst.wire import BroadcastEncoder, MaskFacts, MaskHistory, Reference, WireConfig, model_layout

Key = tuple[object, ...]


class Broadcasts:
    """The broadcasts of the round that begins with `state`: each is made once for all clients that are sent the same.

    `known` are the facts of masks that were sent before; they are computed anew only for masks that have moved.
    """

    def __init__(
        self,
        method: Method,
        state: ServerState,
        wire: WireConfig,
        history: MaskHistory,
        known: Iterable[MaskFacts] = (),
        *,
        audited: bool = False,
    ) -> None:
        self.state = state
        self._method = method
        self._encoder = partial(BroadcastEncoder, wire=wire, history=history, seed=state.seed, audited=audited)
        self._known = {_mask_key(facts): facts for facts in known}
        self._references: dict[Key, tuple[Broadcast, Reference]] = {}
        self._encoders: dict[int, BroadcastEncoder] = {}

    def reference(self, client: int) -> Reference:
        """What this client is to be sent, before any value is rounded."""
        sent = self._method.broadcast(self.state, client)
        key = tuple(map(_same_tensors, (sent.params, sent.buffers, sent.masks)))
        if key not in self._references:
            self._references[key] = sent, Reference(self._as_sent(sent), self._facts_of(sent))
        return self._references[key][1]

    def encoder(self, client: int) -> BroadcastEncoder:
        """The encoder of the message to this client; raises `TrainingError` if the model cannot be sent."""
        reference = self.reference(client)
        if id(reference) not in self._encoders:
            try:
                self._encoders[id(reference)] = self._encoder(reference.broadcast, facts=reference.facts)
            except WireError as error:
                raise TrainingError(f"the model cannot be sent in round {self.state.round}: {error}") from None
        return self._encoders[id(reference)]

    @property
    def facts(self) -> list[MaskFacts]:
        """The facts of each of the masks that are sent."""
        return [reference.facts for _, reference in self._references.values()]

    def _as_sent(self, sent: Broadcast) -> Broadcast:
        """A broadcast with the weights outside its masks set to 0; outside the state's own masks they are already."""
        return sent if sent.masks is self.state.masks else replace(sent, params=masked(sent.params, sent.masks))

    def _facts_of(self, sent: Broadcast) -> MaskFacts:
        fresh = MaskFacts(sent.masks, model_layout(sent.params, sent.buffers))
        return self._known.setdefault(_mask_key(fresh), fresh)


def _mask_key(facts: MaskFacts) -> Key:
    return _same_tensors(facts.masks), facts.layout


def _same_tensors(tensors: Mapping[str, Tensor]) -> Key:
    """A key that is equal for the same tensors under the same names, while they are in memory."""
    return tuple((name, id(value)) for name, value in tensors.items())
