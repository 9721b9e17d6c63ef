"""The client's end of the wire: bytes in, work, bytes out."""

from torch import nn

from feddst.engines.base import Assignment, Job, Reply
from feddst.engines.client import train_client
from feddst.models import persistent_buffers
from feddst.protocol import generator
from feddst.wire import Layout, Reference, decode_broadcast, encode_update, model_layout


def answer(module: nn.Module, assignment: Assignment) -> Reply:
    """Decode the broadcast, carry out the work in `module`, whose tensors are overwritten, and encode the update."""
    sent = decode_broadcast(assignment.parcel.payload, layout_of(module), assignment.parcel.held)
    job = Job(
        client=assignment.client,
        seed=assignment.seed,
        broadcast=sent,
        work=assignment.work,
        inputs=assignment.inputs,
        labels=assignment.labels,
        state=assignment.state,
    )
    outcome = train_client(module, job)
    draws = generator(job.seed, "update rounding", sent.round, job.client)
    payload = encode_update(outcome.update, Reference(sent), job.work, assignment.wire, draws)
    return Reply(payload, outcome.state, outcome.loss)


def layout_of(module: nn.Module) -> Layout:
    """The layout of broadcasts of this module."""
    return model_layout(dict(module.named_parameters()), dict(persistent_buffers(module)))
