"""The client's end of the wire: bytes in, work, bytes out."""

from collections.abc import Callable, Collection

from torch import nn

from feddst.engines.base import Assignment, Job, Outcome, Reply
from feddst.models import persistent_buffers
from feddst.protocol import generator
from feddst.wire import Layout, Reference, decode_reference, encode_update, model_layout


def open_parcel(module: nn.Module, assignment: Assignment) -> Reference:
    """The broadcast that an assignment brings."""
    layout = layout_of(module, assignment.work.keep)
    return decode_reference(assignment.parcel.payload, layout, assignment.parcel.held)


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
