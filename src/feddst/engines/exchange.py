"""The client's end of the wire: bytes in, work, bytes out."""

from collections.abc import Collection

from torch import nn

from feddst.engines.base import Assignment, Job, Reply
from feddst.engines.client import train_client
from feddst.models import persistent_buffers
from feddst.protocol import generator
from feddst.wire import Layout, Reference, decode_broadcast, encode_update, model_layout


def answer(module: nn.Module, assignment: Assignment) -> Reply:
    """Decode the broadcast, carry out the work in `module`, whose tensors are overwritten, and encode the update."""
    layout = layout_of(module, assignment.work.keep)
    sent = decode_broadcast(assignment.parcel.payload, layout, assignment.parcel.held)
    job = Job(
        client=assignment.client,
        seed=assignment.seed,
        broadcast=sent,
        work=assignment.work,
        inputs=assignment.inputs,
        labels=assignment.labels,
        state=assignment.state,
        initial=assignment.initial,
    )
    outcome = train_client(module, job)
    draws = generator(job.seed, "update rounding", sent.round, job.client)
    payload = encode_update(outcome.update, Reference(sent), job.work, assignment.wire, draws)
    return Reply(payload, outcome.state, outcome.loss)


def layout_of(module: nn.Module, keep: Collection[str] = ()) -> Layout:
    """The layout of broadcasts of this module to clients that keep some parameters to themselves."""
    params = {name: value for name, value in module.named_parameters() if name not in keep}
    return model_layout(params, dict(persistent_buffers(module)))
