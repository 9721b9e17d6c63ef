"""The client's end of the wire: bytes in, work, bytes out."""

import threading
from collections.abc import Callable, Collection

import numpy as np
from torch import nn

from feddst.clients.task import Assignment, Failure, Job, Outcome, Reply
from feddst.core import ClientState, generator
from feddst.errors import DivergenceError, WireError
from feddst.models import persistent_buffers
from feddst.wire import Asked, Inbox, Layout, Reference, decode_update, encode_update, model_layout
from feddst.wire.feedback import remainder_of


class Parcels:
    """Opens the parcels of a round; clients whose parcels have the same content share it."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._inboxes: dict[frozenset[str], Inbox] = {}
        self._opened: dict[object, Reference] = {}

    def open(self, assignment: Assignment) -> Reference:
        """The broadcast that an assignment brings."""
        parcel, keep = assignment.parcel, assignment.plan.keep
        key = (parcel.payload, id(parcel.held), keep)
        with self._lock:
            if keep not in self._inboxes:
                self._inboxes[keep] = Inbox(layout_of(self._module, keep))
            if key not in self._opened:
                self._opened[key] = self._inboxes[keep].open(parcel.payload, parcel.held)
            return self._opened[key]


def answer(reference: Reference, assignment: Assignment, train_client: Callable[[Job], Outcome]) -> Reply | Failure:
    """Carry out an assignment whose parcel has been opened, and encode the update."""
    sent = reference.broadcast
    job = Job(
        client=assignment.client,
        seed=assignment.seed,
        broadcast=sent,
        plan=assignment.plan,
        inputs=assignment.inputs,
        labels=assignment.labels,
        state=assignment.state,
        initial=assignment.initial,
        positions=reference.positions,
    )
    try:
        outcome = train_client(job)
    except DivergenceError as error:
        return Failure(str(error), diverged=True)
    draws = generator(job.seed, "update rounding", sent.round, job.client)
    if assignment.wire.feedback:
        payload, state = _encode_with_feedback(outcome, reference, assignment, draws)
        return Reply(payload, state, outcome.loss)
    payload = encode_update(outcome.update, reference, job.plan, assignment.wire, draws)
    return Reply(payload, outcome.state, outcome.loss)


def _encode_with_feedback(
    outcome: Outcome, reference: Reference, assignment: Assignment, draws: np.random.Generator
) -> tuple[bytes, ClientState]:
    """The payload of an update with what was left out of earlier ones, and the state with what is left out of it."""
    plan, remainder = assignment.plan, remainder_of(reference, assignment.plan, outcome.update.masks)
    update = remainder.added(outcome.update, outcome.state)
    payload = encode_update(update, reference, plan, assignment.wire, draws)
    try:
        arrived = decode_update(payload, Asked(reference, plan, update.client, update.weight, assignment.wire))
    except WireError:  # nor will the server take it
        return payload, outcome.state
    return payload, remainder.written(outcome.state, remainder.left_out(update, arrived))


def layout_of(module: nn.Module, keep: Collection[str] = ()) -> Layout:
    """The layout of broadcasts of this module to clients that keep some parameters to themselves."""
    params = {name: value for name, value in module.named_parameters() if name not in keep}
    return model_layout(params, dict(persistent_buffers(module)))
