"""Classes of `torch.optim` on clients: the steps of a plain loop, masks that move, and what cannot be used."""

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.clients.optimizers import Torch, optimizer_named
from feddst.clients.reference import train_client
from feddst.core import OPTIMIZERS, LocalOptimizer, LocalTraining
from feddst.data import Dataset
from feddst.errors import OptionError
from feddst.methods import FedDST
from feddst.sparsity import Sparsity, Timetable

from .test_optimizers import TaskMaker, assert_close, by_torch, made, ours


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a test registers is forgotten."""
    known = dict(OPTIMIZERS)
    yield
    OPTIMIZERS.clear()
    OPTIMIZERS.update(known)


CASES: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "nadam": (torch.optim.NAdam, {"betas": (0.8, 0.98)}),
    "radam": (torch.optim.RAdam, {}),
    "amsgrad": (torch.optim.AdamW, {"amsgrad": True}),
    "momentum": (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "adamax": (torch.optim.Adamax, {}),
}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_pytorch(case: str, sparse: bool, module: nn.Sequential, task: TaskMaker) -> None:
    kind, constants = CASES[case]
    feddst.register(Torch(kind, case, **constants))
    one = made(task, sparse, optimizer=case, l2=0.1)
    assert_close(ours(module, one), by_torch(module, one, kind, **constants))


def test_l2_is_the_weight_decay_of_those_that_decouple_it() -> None:
    decoupled = {kind.__name__ for kind in (torch.optim.AdamW, torch.optim.Adafactor) if Torch(kind).decoupled}
    assert decoupled == {"AdamW", "Adafactor"}
    assert not any(Torch(kind).decoupled for kind in (torch.optim.Adam, torch.optim.SGD, torch.optim.Rprop))


def test_state_is_forgotten_where_masks_move(module: nn.Sequential, task: TaskMaker) -> None:
    feddst.register(Torch(torch.optim.NAdam, "nadam"))
    local = LocalTraining(epochs=2, batch=8, lr=0.01, optimizer="nadam")
    client = train_client(copy.deepcopy(module), task(dst(local, after_epoch=1)))
    client.expose()
    assert set(client.slots) == {"exp_avg", "exp_avg_sq"}
    for name, mask in client.masks.items():
        for values in (client.params, *client.slots.values()):
            assert not values[name][~mask].any()
            assert values[name][mask].any()
    # Where masks have moved after the last step, there is nothing to remember yet.
    last = task(dst(local, after_epoch=2))
    client = train_client(copy.deepcopy(module), last)
    client.expose()
    grown = {name: mask & ~last.sent.broadcast.masks[name] for name, mask in client.masks.items()}
    assert any(bool(new.any()) for new in grown.values())
    for name, new in grown.items():
        assert not any(values[name][new].any() for values in (client.params, *client.slots.values()))


def dst(local: LocalTraining, after_epoch: int) -> FedDST:
    return FedDST(local=local, sparsity=Sparsity(0.6), readjust=Timetable(alpha=0.3, every=1, after_epoch=after_epoch))


def test_it_is_named_after_its_class_and_constants() -> None:
    assert Torch(torch.optim.NAdam).name == "torch-nadam"
    assert Torch(torch.optim.NAdam, betas=(0.9, 0.98)).name == "torch-nadam betas=(0.9, 0.98)"
    one = partial(torch.optim.NAdam, betas=(0.9, 0.98))
    assert optimizer_named(one) == optimizer_named(one) == "torch-nadam betas=(0.9, 0.98)"
    assert pickle.loads(pickle.dumps(OPTIMIZERS["torch-nadam betas=(0.9, 0.98)"])).decoupled is False


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Torch(torch.optim.LBFGS), "LBFGS cannot train clients: .*closure"),
        (lambda: Torch(torch.optim.SparseAdam), "SparseAdam cannot train clients: .*dense gradients"),
        (lambda: Torch(torch.optim.NAdam, betas=(2, 3)), "NAdam cannot train clients: Invalid beta parameter"),
        (lambda: Torch(torch.optim.NAdam, beta=2), "NAdam cannot train clients: .*unexpected keyword argument 'beta'"),
        (lambda: Torch(torch.optim.NAdam, lr=0.1), "lr of NAdam is the option local.lr, got 0.1"),
        (lambda: Torch(torch.optim.Adam, weight_decay=0.1), "weight_decay of Adam is the option local.l2, got 0.1"),
        (lambda: Torch(nn.Linear), "must be a class of torch.optim, got <class .*Linear"),  # type: ignore[arg-type]
        (
            lambda: optimizer_named(nn.Linear(1, 1)),
            "optimizer must be a class of torch.optim, .* got an object of Linear",
        ),
        (lambda: optimizer_named(torch.optim.Adam([torch.ones(1)])), "must be a class of torch.optim, .* of Adam$"),
        (lambda: optimizer_named(Torch(torch.optim.NAdam, "adam")), "another optimizer is registered as 'adam'"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_an_optimizer_of_ones_own_may_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of a class that a cell of a notebook has defined anew; with other constants it needs another name."""

    def defined(rate: float) -> LocalOptimizer:
        class Plain(LocalOptimizer):
            name = "plain"

            def __init__(self) -> None:
                self.rate = rate

            def step(
                self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: LocalTraining, taken: int
            ) -> None:
                theta.sub_(gradient, alpha=self.rate)

        return Plain()

    monkeypatch.setitem(OPTIMIZERS, "plain", defined(1.0))
    again = defined(1.0)
    assert optimizer_named(again) == "plain"
    assert OPTIMIZERS["plain"] is again
    with pytest.raises(OptionError, match="another optimizer is registered as 'plain'"):
        optimizer_named(defined(2.0))


def test_a_run_takes_a_class(tiny_mnist: Dataset) -> None:
    config = feddst.configure(
        rounds=2,
        data={"partition": "iid", "clients": 4, "images_per_class": 5},
        cohort={"size": 2},
        local={"epochs": 2, "lr": 0.003},
        engine={"kind": "reference", "workers": 1},
    )
    found = feddst.run(config, data=tiny_mnist, model=net, optimizer=torch.optim.NAdam)
    assert found.config.local.optimizer == "torch-nadam"
    usual = feddst.run(config, data=tiny_mnist, model=net)
    assert not all(torch.equal(a, b) for a, b in zip(found.model.parameters(), usual.model.parameters(), strict=True))


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(196, 8), nn.ReLU(), nn.Linear(8, 4))
