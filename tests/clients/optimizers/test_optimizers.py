"""Every client optimizer against plain PyTorch on one client, dense and sparse, and what all of them share."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import feddst
from feddst.clients.client import finished
from feddst.clients.reference import train_client
from feddst.core import OPTIMIZERS, LocalTraining, minibatches, positions_of, unpacked
from feddst.errors import OptionError
from feddst.methods import FedAvgM, FedDST, RandomMask
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import ClientTask

TaskMaker = Callable[..., ClientTask]

CASES: dict[str, tuple[dict[str, Any], Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": ({"lr": 0.05, "momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    "sgd, nesterov": ({"lr": 0.05, "nesterov": True}, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": ({}, torch.optim.Adam, {}),
    "adamw": ({"l2": 0.3}, torch.optim.AdamW, {}),
    "rmsprop": ({}, torch.optim.RMSprop, {}),
    "adagrad": ({}, torch.optim.Adagrad, {}),
}
"""Options of each, and what PyTorch calls the same."""


def test_every_optimizer_has_a_case() -> None:
    assert set(OPTIMIZERS) == {name.partition(",")[0] for name in CASES}


def by_torch(
    module: nn.Module, task: ClientTask, make: Callable[..., torch.optim.Optimizer], **constants: Any
) -> dict[str, torch.Tensor]:
    """The weights after the task's minibatches, by a plain training loop with the gradient cut to the mask."""
    local, sent = task.plan.local, task.sent.broadcast
    mine = copy.deepcopy(module)
    mine.load_state_dict(dict(sent.params))
    optimizer = make(mine.parameters(), lr=local.lr, weight_decay=local.l2, **constants)
    steps = [batch for epoch in minibatches(len(task.data), local, *task.draw) for batch in epoch]
    for number, batch in enumerate(steps):
        inputs, labels = task.examples.at(torch.from_numpy(batch)).pair
        optimizer.zero_grad()
        nn.functional.cross_entropy(mine(inputs), labels).backward()  # type: ignore[no-untyped-call]
        for name, value in mine.named_parameters():
            if value.grad is not None and name in sent.masks:
                value.grad *= sent.masks[name]
        if local.clip:
            nn.utils.clip_grad_norm_(mine.parameters(), local.clip)
        if local.schedule_within == "linear":
            optimizer.param_groups[0]["lr"] = local.lr * (1 - number / len(steps))
        optimizer.step()
    return {name: value.detach() for name, value in mine.named_parameters()}


def ours(module: nn.Module, task: ClientTask) -> dict[str, torch.Tensor]:
    update, _ = finished(train_client(copy.deepcopy(module), task))
    masks = task.sent.broadcast.masks if update.masks is None else update.masks
    return unpacked(update.params, positions_of(masks), masks)


def made(task: TaskMaker, sparse: bool, **options: Any) -> ClientTask:
    local = LocalTraining(**{"epochs": 3, "batch": 8, "lr": 0.01, "l2": 0.02, **options})
    return task(RandomMask(local=local, sparsity=Sparsity(0.6)) if sparse else FedAvgM(local=local))


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert float((found[name] - value).abs().max()) <= 1e-6, name


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_pytorch(case: str, sparse: bool, module: nn.Sequential, task: TaskMaker) -> None:
    options, make, constants = CASES[case]
    one = made(task, sparse, optimizer=case.partition(",")[0], **options)
    assert bool(one.sent.broadcast.masks) == sparse
    assert_close(ours(module, one), by_torch(module, one, make, **constants))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_gradients_are_clipped_as_by_pytorch(
    optimizer: str, sparse: bool, module: nn.Sequential, task: TaskMaker
) -> None:
    """The norm is that of the loss's gradient in the active weights, as it is before an optimizer adds weight decay."""
    one = made(task, sparse, optimizer=optimizer, clip=0.2, l2=0.3)
    make, constants = (torch.optim.SGD, {"momentum": 0.9}) if optimizer == "sgd" else (torch.optim.AdamW, {})
    assert_close(ours(module, one), by_torch(module, one, make, **constants))
    free = made(task, sparse, optimizer=optimizer, l2=0.3)
    assert any(bool((ours(module, free)[name] != value).any()) for name, value in ours(module, one).items())


def test_the_rate_falls_within_a_round(module: nn.Sequential, task: TaskMaker) -> None:
    one = made(task, True, schedule_within="linear")
    assert_close(ours(module, one), by_torch(module, one, torch.optim.SGD, momentum=0.9))


@pytest.mark.parametrize("optimizer", ["adamw", "rmsprop", "adagrad"])
def test_what_is_masked_out_stays_zero_while_masks_move(optimizer: str, module: nn.Sequential, task: TaskMaker) -> None:
    local = LocalTraining(epochs=2, batch=8, lr=0.01, optimizer=optimizer)
    one = task(FedDST(local=local, sparsity=Sparsity(0.6), readjust=Timetable(alpha=0.3, every=1, after_epoch=1)))
    client = train_client(copy.deepcopy(module), one)
    moved = 0
    for name, mask in client.masks.items():
        moved += int((mask != one.sent.broadcast.masks[name]).sum())
        assert not client.params[name][~mask].any()
        assert not any(kept[name][~mask].any() for kept in client.slots.values())
        assert all(kept[name][mask].any() for kept in client.slots.values())
    assert moved


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adam", "momentum": 0.5}, "local.momentum has no effect on feddst with local.optimizer adam"),
        ({"optimizer": "adagrad", "nesterov": True}, "local.nesterov has no effect on feddst with local.optimizer ada"),
        ({"momentum": 0.0, "nesterov": True}, "local.nesterov has no effect on feddst with local.momentum 0"),
        ({"clip": -1.0}, "local.clip must be at least 0, got -1.0"),
    ],
)
def test_options_of_other_optimizers_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        feddst.configure(local=options)
