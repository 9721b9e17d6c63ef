"""The client's end of the wire: bytes in, work, bytes out."""

import threading
from collections.abc import Callable, Collection

from torch import nn

from feddst.engines.base import Assignment, Job, Outcome, Reply
from feddst.models import persistent_buffers
from feddst.protocol import generator
from feddst.wire import Inbox, Layout, Reference, encode_update, model_layout


class Parcels:
    """Opens the parcels of a round; clients whose parcels have the same content share it."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._inboxes: dict[frozenset[str], Inbox] = {}
        self._opened: dict[object, Reference] = {}

    def open(self, assignment: Assignment) -> Reference:
        """The broadcast that an assignment brings."""
        parcel, keep = assignment.parcel, assignment.work.keep
        key = (parcel.payload, id(parcel.held), keep)
        with self._lock:
            if keep not in self._inboxes:
                self._inboxes[keep] = Inbox(layout_of(self._module, keep))
            if key not in self._opened:
                self._opened[key] = self._inboxes[keep].open(parcel.payload, parcel.held)
            return self._opened[key]


def answer(reference: Reference, assignment: Assignment, train_client: Callable[[Job], Outcome]) -> Reply:
    """Carry out an assignment whose parcel has been opened, and encode the update."""
    sent = reference.broadcast
    job = Job(
        client=assignment.client,
        seed=assignment.seed,
        broadcast=sent,
        work=assignment.work,
        inputs=assignment.inputs,
        labels=assignment.labels,
        state=assignment.state,
        initial=assignment.initial,
        positions=reference.positions,
    )
    outcome = train_client(job)
    draws = generator(job.seed, "update rounding", sent.round, job.client)
    payload = encode_update(outcome.update, reference, job.work, assignment.wire, draws)
    return Reply(payload, outcome.state, outcome.loss)


def layout_of(module: nn.Module, keep: Collection[str] = ()) -> Layout:
    """The layout of broadcasts of this module to clients that keep some parameters to themselves."""
    params = {name: value for name, value in module.named_parameters() if name not in keep}
    return model_layout(params, dict(persistent_buffers(module)))
