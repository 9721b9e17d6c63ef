"""PruneFL's first stage at one client: when it ends, by hand, and all of it against a plain loop."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from feddst.clients.client import Client, finished
from feddst.clients.steps import InitialPruning
from feddst.clients.steps.initial_pruning import choose_masks, density, settled
from feddst.clients.steps.squares import Squares
from feddst.core import (
    Broadcast,
    ClientPlan,
    LocalTraining,
    SparseSum,
    count_active,
    minibatches,
    positions_of,
    unpacked,
)
from feddst.core.model import LayerTimes
from feddst.methods import FedAvgM, PruneFL, Reconfiguration
from feddst.models import initial_model
from feddst.sparsity.reconfiguration import reconfigure
from feddst.wire import ClientTask, Reference

LOCAL = LocalTraining(epochs=3, batch=8, lr=0.1, momentum=0.9, l2=0.01)
ORDERS = InitialPruning(rounds=6, every=2, prunable=0.3, times={"0.weight": 2.0, "3.weight": 1.0}, constant=100.0)
TaskMaker = Callable[..., ClientTask]
TrainClient = Callable[[nn.Module, ClientTask], Client]


@pytest.mark.parametrize(
    ("densities", "enough"),
    [
        ([1.0, 0.95, 0.9, 0.9, 0.85, 0.8], True),  # five changes, each by at most a tenth
        ([1.0, 0.95, 0.9, 0.9, 0.85], False),  # only four
        ([1.0, 0.95, 0.9, 0.9, 0.85, 0.76], False),  # the last from 0.85, by more than a tenth
        ([0.5, 0.6, 0.6, 0.6, 0.6, 0.6], False),  # the first of five, by a fifth upwards
        ([1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], True),  # the first of six does not count
        ([0.0] * 6, True),
    ],
)
def test_it_ends_when_the_density_has_hardly_changed_five_times(densities: list[float], enough: bool) -> None:
    assert settled(densities, ORDERS) == enough


def test_masks_are_chosen_as_the_server_chooses_them() -> None:
    """Two of four weights are active; the mean squares are 4/2, 1/2, 9/2 and 0, as the second step has no gradient.

    The 3 stays: Γ = 2/(1 + 1) = 1. The third weight has 4.5, which is more; then Γ = 6.5/3, and the second has 0.5.
    """
    params, velocity = {"w": torch.tensor([[3.0, -1.0, 0.0, 0.0]])}, {"w": torch.full((1, 4), 7.0)}
    masks, squares = {"w": torch.tensor([[True, True, False, False]])}, Squares()
    squares.add({"w": torch.tensor([[2.0, 1.0, 3.0, 0.0]])})
    squares.add({"w": torch.zeros(1, 4)})
    found = choose_masks(params, [velocity], masks, squares, InitialPruning(1, 1, 0.5, {"w": 1.0}, constant=1.0))
    assert found["w"].tolist() == [[True, False, True, False]]
    assert params["w"].tolist() == [[3, 0, 0, 0]]
    assert velocity["w"].tolist() == [[7, 0, 0, 7]]  # the last was not in the mask, and is not
    assert density(found) == 0.5


def dense(task: ClientTask, module: nn.Module) -> ClientTask:
    """The task on all weights, with masks that keep every one, as PruneFL's first client gets it."""
    params = initial_model(module).params
    masks = {name: torch.ones(params[name].shape, dtype=torch.bool) for name in ORDERS.times}
    plan = ClientPlan(LOCAL, (ORDERS,))
    return replace(task, plan=plan).read_as(Reference(Broadcast(0, params, masks=masks)))


def by_hand(module: nn.Module, task: ClientTask) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights and the masks after all rounds, step by step."""
    sent = task.sent.broadcast
    params = {name: value.detach().clone() for name, value in sent.params.items()}
    velocity = {name: torch.zeros_like(value) for name, value in params.items()}
    masks, steps = dict(sent.masks), 0
    squares: dict[str, Tensor] = {}
    rounds = minibatches(len(task.data), replace(LOCAL, epochs=ORDERS.rounds), task.seed, 0, task.client)
    for r, batches in enumerate(rounds, 1):
        for inputs, labels in (task.examples.at(torch.from_numpy(batch)).pair for batch in batches):
            leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
            loss = F.cross_entropy(torch.func.functional_call(module, leaves, (inputs,)), labels)
            gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
            steps += 1
            for name, g in gradients.items():
                squares[name] = squares.get(name, torch.zeros_like(g)) + g**2
                step = (g + LOCAL.l2 * params[name]) * masks.get(name, 1)
                velocity[name] = LOCAL.momentum * velocity[name] + step
                params[name] = params[name] - LOCAL.lr * velocity[name]
        if r % ORDERS.every == 0:
            means = {name: value / steps for name, value in squares.items()}
            masks = reconfigure(params, means, masks, LayerTimes(ORDERS.times, ORDERS.constant), ORDERS.prunable)
            params = {name: value * masks.get(name, 1) for name, value in params.items()}
            velocity = {name: value * masks.get(name, 1) for name, value in velocity.items()}
            squares, steps = {}, 0
    return params, masks


def test_a_client_trains_and_prunes_for_as_many_rounds_as_it_is_told(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    one = dense(task(FedAvgM(local=LOCAL)), module)
    update, _ = finished(train_client(module, one))
    params, masks = by_hand(module, one)
    assert update.masks is None
    whole = unpacked(update.params, positions_of(one.sent.broadcast.masks), one.sent.broadcast.masks)
    for name, value in params.items():
        torch.testing.assert_close(whole[name], value, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(update.extra["kept"][name], masks.get(name, torch.ones_like(value)).float())
    assert count_active(masks)["3.weight"] < 0.7 * masks["3.weight"].numel()


def test_it_goes_no_further_once_it_has_settled(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    """Nothing may leave and nothing is out: the density is 1 after rounds 1 to 6, which is five times the same."""
    one = dense(task(FedAvgM(local=LOCAL)), module)
    still = replace(ORDERS, every=1, prunable=0.0)
    asked = [replace(one, plan=replace(one.plan, steps=(replace(still, rounds=rounds),))) for rounds in (50, 6)]
    (long, _), (short, _) = (finished(train_client(module, each)) for each in asked)
    # Fifty rounds' minibatches are those of six rounds at first.
    assert all(torch.equal(value, short.params[name]) for name, value in long.params.items())
    assert all(kept.all() for kept in long.extra["kept"].values())


def test_the_server_takes_weights_and_masks_over(
    module: nn.Sequential, train_client: TrainClient, task: TaskMaker
) -> None:
    method = PruneFL(local=LOCAL, prunefl=Reconfiguration(every=2, initial_rounds=6, layer_times="equal"))
    state = method.init(initial_model(module), seed=7)
    plan = method.plan(state, 0)
    orders = plan.step(InitialPruning)
    assert orders is not None
    assert (orders.rounds, orders.every, orders.prunable) == (6, 2, 0.3)
    assert plan.groups == ("kept",)
    one = replace(task(FedAvgM(local=LOCAL)), plan=plan).read_as(Reference(method.broadcast(state, 0)))
    update, _ = finished(train_client(module, one))
    total = SparseSum(state.masks)
    total.add(update)
    after = method.aggregate(state, total)
    assert after.round == 1
    for name, mask in after.masks.items():
        assert torch.equal(mask, update.extra["kept"][name] == 1)
        assert not after.params[name][~mask].any()
    assert after.budgets == count_active(after.masks)
    assert method.plan(after, 0) == FedAvgM(local=LOCAL).plan(after, 0)
