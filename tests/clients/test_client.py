"""A client's round against PyTorch's own optimizer, and each kind of work on its own, in PyTorch and natively."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from feddst.clients import reference as torch_client
from feddst.clients.client import Client, finished
from feddst.clients.steps import Growth, Proximal, Readjust, Report
from feddst.core import (
    Broadcast,
    ClientPlan,
    ClientState,
    Examples,
    LocalTraining,
    Update,
    count_active,
    masked,
    minibatches,
    positions_of,
    unpacked,
)
from feddst.data import Dataset
from feddst.errors import TrainingError
from feddst.methods import FedAvgM, FedDST, FedProx, RandomMask
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import ClientTask, Message, Reference

LOCAL = LocalTraining(epochs=3, batch=8, lr=0.1, momentum=0.9, l2=0.01)
TaskMaker = Callable[..., ClientTask]
TrainClient = Callable[[nn.Module, ClientTask], Client]


def by_torch(module: nn.Module, task: ClientTask, mu: float = 0.0) -> dict[str, Tensor]:
    """The same training with torch.optim.SGD, the mask applied after each step."""
    module, sent = copy.deepcopy(module), task.sent.broadcast
    module.load_state_dict(dict(sent.params))
    local = task.plan.local
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=local.lr, momentum=local.momentum, weight_decay=local.l2)
    for batches in minibatches(len(task.data), local, task.seed, task.round, task.client):
        for indices in batches:
            inputs, labels = task.examples.at(torch.from_numpy(indices)).pair
            loss = F.cross_entropy(module(inputs), labels)
            distance = sum(((p - sent.params[name]) ** 2).sum() for name, p in module.named_parameters())
            optimizer.zero_grad()
            torch.autograd.backward(loss + mu / 2 * distance if mu else loss)
            optimizer.step()
            with torch.no_grad():
                for name, p in module.named_parameters():
                    if name in sent.masks:
                        p.mul_(sent.masks[name])
    return {name: p.detach() for name, p in module.named_parameters()}


def update_of(client: Client) -> Update:
    """What a trained client sends back."""
    return finished(client)[0]


def whole(update: Update, task: ClientTask) -> dict[str, Tensor]:
    """A client's parameters, with zeros where its mask has none."""
    masks = task.sent.broadcast.masks if update.masks is None else update.masks
    return unpacked(update.params, positions_of(masks), masks)


def assert_close(update: Update, task: ClientTask, expected: dict[str, Tensor]) -> None:
    for name, value in whole(update, task).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)


def test_dense_training_is_sgd(train_client: TrainClient, module: nn.Sequential, task: TaskMaker) -> None:
    one = task(FedAvgM(local=LOCAL))
    client = train_client(module, one)
    update = update_of(client)
    assert_close(update, one, by_torch(module, one))
    assert update.masks is None
    assert update.weight == 20
    assert client.loss > 0


def test_sparse_training_is_sgd_with_the_mask_applied_after_each_step(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    one = task(RandomMask(local=LOCAL, sparsity=Sparsity(0.7)))
    update = update_of(train_client(module, one))
    assert_close(update, one, by_torch(module, one))
    for name, mask in one.sent.broadcast.masks.items():
        assert update.params[name].shape == (int(mask.sum()),)


def test_the_proximal_term_has_its_real_gradient(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    one = task(FedProx(local=LOCAL, proximal=Proximal(mu=0.7)))
    assert_close(update_of(train_client(module, one)), one, by_torch(module, one, mu=0.7))


def test_the_published_proximal_term_does_nothing(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    one = task(FedProx(local=LOCAL, proximal=Proximal(mu=0.7, gradient="detached")))
    assert_close(update_of(train_client(module, one)), one, by_torch(module, task(FedAvgM(local=LOCAL))))


def test_partial_work_is_the_beginning_of_the_whole(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    full = task(FedProx(local=LOCAL))
    shortened = replace(full, plan=full.plan.shortened(2))
    two_epochs = task(FedProx(local=replace(LOCAL, epochs=2)))
    results = [update_of(train_client(module, one)).params for one in (shortened, two_epochs, full)]
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])
    assert any(not torch.equal(results[0][name], results[2][name]) for name in results[0])


def feddst(growth: Growth | None = None, after_epoch: int = 0) -> FedDST:
    timetable = Timetable(alpha=0.3, every=1, until=10, after_epoch=after_epoch)
    return FedDST(local=LOCAL, sparsity=Sparsity(0.6, "uniform"), readjust=timetable, growth=growth or Growth())


@pytest.mark.parametrize("rule", ["gradient", "random"])
@pytest.mark.parametrize("after_epoch", [0, 1])
def test_readjustment_keeps_budgets_and_moves_the_mask(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker, rule: str, after_epoch: int
) -> None:
    one = task(feddst(Growth(rule=rule), after_epoch))  # type: ignore[arg-type]
    update = update_of(train_client(module, one))
    assert update.masks is not None
    orders = one.plan.step(Readjust)
    assert orders is not None
    assert count_active(update.masks) == dict(orders.budgets)
    final = whole(update, one)
    for name, mask in update.masks.items():
        grown = mask & ~one.sent.broadcast.masks[name]
        assert int(grown.sum()) <= orders.drop[name]
        assert bool(final[name][grown].any()) == (after_epoch == 1 and bool(grown.any()))
    assert any(not torch.equal(mask, one.sent.broadcast.masks[name]) for name, mask in update.masks.items())


def test_growth_follows_the_task_gradient_at_the_pruned_weights(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    """Recomputed independently: train, drop, then differentiate the mean loss over all images."""
    one = task(feddst())
    orders = one.plan.step(Readjust)
    assert orders is not None
    trained = update_of(train_client(copy.deepcopy(module), replace(one, plan=replace(one.plan, steps=()))))
    pruned = {}
    for name, value in whole(trained, one).items():
        pruned[name] = value.clone()
        if name in one.sent.broadcast.masks:
            active = one.sent.broadcast.masks[name].flatten().nonzero().flatten()
            smallest = active[value.flatten()[active].abs().argsort()[: orders.drop[name]]]
            pruned[name].view(-1)[smallest] = 0
    module.load_state_dict(pruned)
    inputs, labels = one.examples.pair
    torch.autograd.backward(F.cross_entropy(module(inputs), labels))
    update = update_of(train_client(copy.deepcopy(module), one))
    assert update.masks is not None
    compared = 0
    for name, p in module.named_parameters():
        if name in update.masks:
            assert p.grad is not None
            grown = p.grad[update.masks[name] & (pruned[name] == 0)].abs()
            passed_over = p.grad[~update.masks[name]].abs()
            if len(grown) and len(passed_over):
                assert grown.min() >= passed_over.max() - 1e-7
                compared += 1
    assert compared >= 2


def test_published_growth_zeroes_survivors_and_misses_the_budget(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    one = task(feddst(Growth(grow_from="any", images="last-batch", weights="unpruned")))
    update = update_of(train_client(module, one))
    assert update.masks is not None
    orders = one.plan.step(Readjust)
    assert orders is not None
    counts = count_active(update.masks)
    assert all(counts[name] <= budget for name, budget in orders.budgets.items())
    assert sum(counts.values()) < sum(orders.budgets.values())


def test_gradient_reports_are_the_mean_gradient_at_the_end(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    one = replace(task(FedAvgM(local=LOCAL)), plan=ClientPlan(LOCAL, (Report("gradient"),), train=False))
    update = update_of(train_client(module, one))
    assert not update.params
    inputs, labels = one.examples.pair
    torch.autograd.backward(F.cross_entropy(module(inputs), labels))
    for name, p in module.named_parameters():
        assert p.grad is not None
        torch.testing.assert_close(update.extra["gradient"][name], p.grad, rtol=1e-5, atol=1e-7)


def test_squared_gradients_are_the_mean_over_steps_of_each_minibatchs(train_client: TrainClient) -> None:
    """Two classes, one weight each, one image (1) a step; lr ½, no momentum.

    At θ = (0, 0) both classes have probability ½, so that an image of class 0 has the gradient (−½, ½), and θ becomes
    (¼, −¼). Then class 0 has p = 1/(1 + e^−½) = .6224593: an image of class 0 has (p − 1, 1 − p). The mean of the
    squares is (.25 + .1425370)/2 = .1962685 for both; that of the plain gradients, squared, would be .1925524.
    """
    module = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    local = LocalTraining(epochs=1, batch=1, lr=0.5, momentum=0.0, l2=0.0)
    sent = Broadcast(1, {"1.weight": torch.zeros(2, 1)}, masks={"1.weight": torch.ones(2, 1, dtype=torch.bool)})
    plan = ClientPlan(local, (Report("squared-gradient"),))
    examples = Examples(torch.ones(2, 1, 1, 1), torch.zeros(2, dtype=torch.int64))
    one = ClientTask(0, 7, plan, Message().read_as(Reference(sent)), examples)
    update = update_of(train_client(module, one))
    torch.testing.assert_close(update.extra["squared-gradient"]["1.weight"], torch.full((2, 1), 0.1962685))
    plain = update_of(train_client(module, replace(one, plan=ClientPlan(local))))
    assert torch.equal(update.params["1.weight"], plain.params["1.weight"])


def test_squared_gradients_of_pruned_weights_are_gathered_too(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    one = task(RandomMask(local=LOCAL, sparsity=Sparsity(0.7)))
    found = update_of(train_client(module, replace(one, plan=one.plan.adding(Report("squared-gradient")))))
    plain = update_of(train_client(module, one))
    assert all(torch.equal(value, found.params[name]) for name, value in plain.params.items())
    for name, mask in one.sent.broadcast.masks.items():
        squares = found.extra["squared-gradient"][name]
        assert squares.shape == mask.shape
        assert squares.min() >= 0
        assert squares[~mask].max() > 0


def test_kept_parameters_stay_with_the_client(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    keep = frozenset({"0.weight", "0.bias"})
    plain = task(FedAvgM(local=LOCAL))
    whole = plain.sent.broadcast
    sent = replace(whole, params={name: value for name, value in whole.params.items() if name not in keep})
    one = replace(plain, plan=ClientPlan(LOCAL, keep=keep), initial=whole.params).read_as(Reference(sent))
    update, state = finished(train_client(module, one))
    assert set(state.tensors) == {"0.weight", "0.bias"}
    assert not set(update.params) & set(state.tensors)
    marked = ClientState({"0.weight": torch.full((3, 1, 3, 3), 0.5), "0.bias": torch.zeros(3)})
    idle = replace(one, plan=replace(one.plan, train=False), state=marked)
    _, kept = finished(train_client(module, idle))
    assert torch.equal(kept.tensors["0.weight"], marked.tensors["0.weight"])


def test_clients_weigh_by_images_or_by_minibatches(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    by_batches = task(FedAvgM(local=replace(LOCAL, weigh_by="batches")))
    assert update_of(train_client(module, by_batches)).weight == 3  # 20 images in minibatches of 8


def test_divergence_names_the_client_and_the_round(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    with pytest.raises(TrainingError, match="client 3 diverged in round 4"):
        update_of(train_client(module, task(FedAvgM(local=replace(LOCAL, lr=1e30)), client=3, round=4)))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_images_that_are_no_numbers_do_not_go_unnoticed(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker, bad: float
) -> None:
    one = task(RandomMask(local=LOCAL, sparsity=Sparsity(0.7)))
    inputs, labels = one.examples.pair
    spoilt = inputs.clone()
    spoilt[7, 0, 3, 4] = bad
    with pytest.raises(TrainingError, match="client 0 diverged in round 1"):
        update_of(train_client(module, one.with_data(Examples(spoilt, labels))))


def test_dropout_follows_the_key_and_not_what_was_drawn_before(module: nn.Sequential, task: TaskMaker) -> None:
    noisy = nn.Sequential(*module, nn.Dropout(0.5))
    one = task(FedAvgM(local=LOCAL))
    first = update_of(torch_client.train_client(noisy, one)).params
    torch.rand(10)
    before = torch.random.get_rng_state()
    second = update_of(torch_client.train_client(noisy, one)).params
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(before, torch.random.get_rng_state())
    without = update_of(torch_client.train_client(module, one)).params
    assert any(not torch.equal(first[name], without[name]) for name in first)


class Tangled(nn.Module):
    """Legal but awkward: two weights that are added, a frozen one, an unused one, and a broadcast one."""

    def __init__(self) -> None:
        super().__init__()
        draws = torch.Generator().manual_seed(4)
        self.a = nn.Parameter(torch.randn(4, 64, generator=draws) / 8)
        self.b = nn.Parameter(torch.randn(4, 64, generator=draws) / 8)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))
        self.shift = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.flatten(1), self.a + self.b) * self.frozen + self.shift.mean() * torch.arange(4.0)


@pytest.mark.parametrize("sparse", [False, True])
def test_awkward_modules_are_trained_as_torch_trains_them(dataset: Dataset, sparse: bool) -> None:
    module = Tangled()
    params = {name: value.detach().clone() for name, value in module.named_parameters()}
    masks = {"a": torch.arange(256).reshape(4, 64) % 2 == 0} if sparse else {}
    sent = Broadcast(round=1, params=masked(params, masks), masks=masks)
    plan = ClientPlan(LOCAL, (Report("gradient"),))
    examples = Examples(dataset.train_images[:20], dataset.train_labels[:20])
    one = ClientTask(0, 7, plan, Message().read_as(Reference(sent)), examples)
    update = update_of(torch_client.train_client(copy.deepcopy(module), one))
    assert_close(update, one, by_torch(module, one))
    assert torch.equal(update.params["unused"], params["unused"])
    assert torch.equal(update.params["frozen"], params["frozen"])
    assert torch.equal(update.extra["gradient"]["a"], update.extra["gradient"]["b"])
