"""A client that keeps what its codec left out: two rounds of it, bytes in and bytes out."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from feddst.clients import reference as torch_client
from feddst.clients.client import Client
from feddst.clients.exchange import TaskReader, answer
from feddst.core import ClientState, LocalTraining, Tensors
from feddst.methods import FedAvgM, FedDST, Method
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import ClientTask, WireConfig, decode_update
from feddst.wire.feedback import remainder_of

TaskMaker = Callable[..., ClientTask]
TrainClient = Callable[[nn.Module, ClientTask], Client]
LOCAL = LocalTraining(epochs=2, batch=8, lr=0.1)
TOP = WireConfig(values="top8", feedback=True)
METHODS = {
    "dense": FedAvgM(local=LOCAL),
    "sparse": FedDST(local=LOCAL, sparsity=Sparsity(0.6), readjust=Timetable(alpha=0.3, every=1000)),
    "readjusted": FedDST(local=LOCAL, sparsity=Sparsity(0.6), readjust=Timetable(alpha=0.3, every=1)),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_what_does_not_arrive_comes_with_the_next_update(
    method: Method, module: nn.Sequential, task: TaskMaker, train_client: TrainClient
) -> None:
    """The client is asked the same twice, so that without what it keeps it would answer the same."""

    def asked(wire: WireConfig, state: ClientState) -> tuple[Tensors, Tensor, ClientState]:
        one = TaskReader(module).read(replace(task(method, wire=wire), state=state))
        result = answer(one, partial(train_client, module))
        assert result.payload is not None
        update = decode_update(result.payload, one)
        row = remainder_of(one.sent, one.plan, update.masks).read(result.state)
        return update.params, torch.empty(0) if row is None else row.float(), result.state

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


def moved(by: float, module: nn.Module, task: ClientTask) -> Client:
    """A client whose weights are so far from those it was sent, each of them."""
    client = torch_client.train_client(module, task)
    with torch.no_grad():
        for name, value in client.params.items():
            value.copy_(task.sent.broadcast.params[name] + by)
    return client


def test_an_update_that_no_server_would_take_leaves_what_was_kept(module: nn.Sequential, task: TaskMaker) -> None:
    one = TaskReader(module).read(task(METHODS["dense"], wire=TOP))
    remainder = remainder_of(one.sent, one.plan)
    count = sum(value.numel() for value in one.sent.broadcast.params.values())
    state = remainder.written(ClientState(), torch.ones(count, dtype=torch.bfloat16))
    result = answer(replace(one, state=state), partial(moved, 1e30, module))
    assert result.payload is not None
    assert result.state.feedback is state.feedback
    assert not result.state.tensors


def test_an_update_too_far_from_what_was_sent_leaves_what_was_kept(module: nn.Sequential, task: TaskMaker) -> None:
    one = TaskReader(module).read(task(METHODS["dense"], wire=replace(TOP, values="q2", max_change=1.0)))
    kept = ClientState({"own": torch.ones(3)})
    result = answer(replace(one, state=kept), partial(moved, 10.0, module))
    assert result.payload is not None
    assert result.state.feedback is kept.feedback
    assert result.state.tensors == kept.tensors


def test_clients_whose_messages_say_the_same_share_what_they_say(module: nn.Sequential, task: TaskMaker) -> None:
    reader = TaskReader(module)
    first, second = (reader.read(task(METHODS["sparse"], client=client)) for client in (0, 1))
    assert first.client != second.client
    assert first.sent is second.sent
    other = reader.read(task(METHODS["sparse"], round=2))
    assert other.sent is not first.sent
    assert (first.round, other.round) == (1, 2)


def test_a_client_that_diverges_says_why_there_is_no_update(module: nn.Sequential, task: TaskMaker) -> None:
    one = TaskReader(module).read(task(FedAvgM(local=replace(LOCAL, lr=1e30)), client=3, round=4))
    result = answer(one, partial(torch_client.train_client, module))
    assert result.payload is None
    assert result.diverged
    assert "client 3 diverged in round 4" in result.failure
