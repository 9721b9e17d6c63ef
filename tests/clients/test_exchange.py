"""A client that keeps what its codec left out: two rounds of it, bytes in and bytes out."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from feddst.clients import Assignment, Job, Outcome, Reply
from feddst.clients.exchange import Parcels, answer
from feddst.core import ClientState, LocalTraining, Tensors, Update
from feddst.methods import FedAvgM, FedDST, Method
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import Asked, WireConfig, decode_update
from feddst.wire.feedback import remainder_of

AssignmentMaker = Callable[..., Assignment]
TrainClient = Callable[[nn.Module, Job], Outcome]
LOCAL = LocalTraining(epochs=2, batch=8, lr=0.1)
TOP = WireConfig(values="top8", feedback=True)
METHODS = {
    "dense": FedAvgM(local=LOCAL),
    "sparse": FedDST(local=LOCAL, sparsity=Sparsity(0.6), readjust=Timetable(alpha=0.3, every=1000)),
    "readjusted": FedDST(local=LOCAL, sparsity=Sparsity(0.6), readjust=Timetable(alpha=0.3, every=1)),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_what_does_not_arrive_comes_with_the_next_update(
    method: Method, module: nn.Sequential, assignment: AssignmentMaker, train_client: TrainClient
) -> None:
    """The client is asked the same twice, so that without what it keeps it would answer the same."""

    def asked(wire: WireConfig, state: ClientState) -> tuple[Tensors, Tensor, ClientState]:
        given = replace(assignment(method, wire=wire), state=state)
        reference = Parcels(module).open(given)
        reply = answer(reference, given, lambda job: train_client(module, job))
        assert isinstance(reply, Reply)
        update = decode_update(reply.payload, Asked(reference, given.plan, 0, 1000))
        row = remainder_of(reference, given.plan, update.masks).read(reply.state)
        return update.params, torch.empty(0) if row is None else row.float(), reply.state

    own = ClientState({"own": torch.ones(3)})
    trained, nothing, state = asked(WireConfig(), own)
    assert not len(nothing)
    assert not state.feedback
    first, once, state = asked(TOP, own)
    second, twice, again = asked(TOP, state)
    assert torch.equal(once, (joined(trained) - joined(first)).bfloat16().float())
    assert torch.equal(twice, (joined(trained) + once - joined(second)).bfloat16().float())
    assert once.count_nonzero() > 0.8 * len(once)
    assert not torch.equal(joined(first), joined(second))
    assert torch.equal(again.tensors["own"], torch.ones(3))


def joined(tensors: Tensors) -> Tensor:
    return torch.cat([value.reshape(-1) for _, value in sorted(tensors.items())])


def test_an_update_that_no_server_would_take_leaves_what_was_kept(
    module: nn.Sequential, assignment: AssignmentMaker
) -> None:
    given = assignment(METHODS["dense"], wire=TOP)
    reference = Parcels(module).open(given)
    sent = reference.broadcast
    remainder = remainder_of(reference, given.plan)
    count = sum(value.numel() for value in sent.params.values())
    state = remainder.written(ClientState(), torch.ones(count, dtype=torch.bfloat16))
    huge = {name: value + 1e30 for name, value in sent.params.items()}

    def trained(job: Job) -> Outcome:
        return Outcome(Update(0, sent.round, 20, huge), job.state, 0.0)

    reply = answer(reference, replace(given, state=state), trained)
    assert isinstance(reply, Reply)
    assert reply.state is state


def test_an_update_too_far_from_what_was_sent_leaves_what_was_kept(
    module: nn.Sequential, assignment: AssignmentMaker
) -> None:
    given = assignment(METHODS["dense"], wire=replace(TOP, values="q2", max_change=1.0))
    reference = Parcels(module).open(given)
    sent = reference.broadcast
    far = {name: value + 10 for name, value in sent.params.items()}

    def trained(job: Job) -> Outcome:
        return Outcome(Update(0, sent.round, 20, far), job.state, 0.0)

    kept = ClientState({"own": torch.ones(3)})
    reply = answer(reference, replace(given, state=kept), trained)
    assert isinstance(reply, Reply)
    assert reply.state is kept
