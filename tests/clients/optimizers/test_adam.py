"""Adam by hand, against PyTorch's, and under masks that move."""

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from feddst.clients.client import finished
from feddst.clients.optimizers import SGD, Adam
from feddst.clients.reference import train_client
from feddst.clients.steps import Readjust
from feddst.core import ClientPlan, LocalTraining, minibatches, positions_of, unpacked
from feddst.methods import FedAvgM, FedDST
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import ClientTask

LOCAL = LocalTraining(epochs=3, batch=8, lr=0.01, l2=0.02, optimizer="adam")
TaskMaker = Callable[..., ClientTask]


def test_two_steps_by_hand() -> None:
    """g = 4, then 0. At step 1 m̂ = g and v̂ = g², so θ moves by η against the sign of g. After that m = 0.9·0.4 = 0.36,
    v = 0.999·0.016 = 0.015984, m̂ = 0.36/0.19, v̂ = 0.015984/0.001999."""
    theta, slots = torch.tensor([1.0, 1.0]), {"mean": torch.zeros(2), "square": torch.zeros(2)}
    local = LocalTraining(lr=0.5)
    Adam().step(theta, torch.tensor([4.0, 0.0]), slots, local, taken=0)
    torch.testing.assert_close(theta, torch.tensor([0.5, 1.0]))
    Adam().step(theta, torch.tensor([0.0, 0.0]), slots, local, taken=1)
    torch.testing.assert_close(theta, torch.tensor([0.5 - 0.5 * (0.36 / 0.19) / (0.015984 / 0.001999) ** 0.5, 1.0]))


def test_sgd_by_hand() -> None:
    """v = 0.5·2 + 3 = 4, θ = 1 − 0.1·4."""
    theta, slots = torch.tensor([1.0]), {"velocity": torch.tensor([2.0])}
    SGD().step(theta, torch.tensor([3.0]), slots, LocalTraining(lr=0.1, momentum=0.5), taken=7)
    torch.testing.assert_close(theta, torch.tensor([0.6]))
    assert slots["velocity"].item() == 4.0


def test_a_dense_client_takes_the_steps_of_pytorchs_adam(module: nn.Sequential, task: TaskMaker) -> None:
    one = task(FedAvgM(local=LOCAL))
    update, _ = finished(train_client(copy.deepcopy(module), one))
    mine = copy.deepcopy(module)
    mine.load_state_dict(dict(one.sent.broadcast.params))
    optimizer = torch.optim.Adam(mine.parameters(), lr=LOCAL.lr, weight_decay=LOCAL.l2)
    for epoch in minibatches(len(one.data), LOCAL, one.seed, one.round, one.client):
        for inputs, labels in (one.examples.at(torch.from_numpy(batch)).pair for batch in epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(mine(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    for name, value in mine.named_parameters():
        torch.testing.assert_close(update.params[name], value, rtol=1e-4, atol=1e-6)


def sparse(task: TaskMaker) -> ClientTask:
    return task(FedDST(local=LOCAL, sparsity=Sparsity(0.6), readjust=Timetable(alpha=0.3, every=1, after_epoch=1)))


def test_what_is_masked_out_stays_zero_and_what_grows_begins_anew(module: nn.Sequential, task: TaskMaker) -> None:
    one = sparse(task)
    update, _ = finished(train_client(copy.deepcopy(module), one))
    assert update.masks is not None
    orders = one.plan.step(Readjust)
    assert orders is not None
    assert {name: int(mask.sum()) for name, mask in update.masks.items()} == dict(orders.budgets)
    # With no epoch after the readjustment, what has grown is 0: nothing is remembered that could move it.
    still = ClientPlan(replace(LOCAL, epochs=1), one.plan.steps)
    end, _ = finished(train_client(copy.deepcopy(module), replace(one, plan=still)))
    assert end.masks is not None
    whole = unpacked(end.params, positions_of(end.masks), end.masks)
    for name, mask in end.masks.items():
        assert not whole[name][mask & ~one.sent.broadcast.masks[name]].any()
    assert any(bool((mask & ~one.sent.broadcast.masks[name]).any()) for name, mask in end.masks.items())
