"""A lottery ticket by hand; and everything that clients keep, in worker processes."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from feddst.clients.client import Beginning, Client, beginning, finished
from feddst.clients.steps import LotteryPruning
from feddst.clients.steps.lottery import held_out_images, kept_masks, own_masks
from feddst.core import (
    Broadcast,
    ClientPlan,
    ClientState,
    Examples,
    LocalTraining,
    count_active,
    positions_of,
    unpacked,
)
from feddst.data import Dataset
from feddst.engines import ProcessEngine, ReferenceEngine, results_of
from feddst.methods import LGFedAvg, Lottery, LotteryFL, Method, SignSGD
from feddst.models import initial_model
from feddst.sparsity import Sparsity
from feddst.wire import ClientTask, Message, Reference, WireConfig

LOCAL = LocalTraining(epochs=2, batch=8, lr=0.1, momentum=0.9)
THETA = torch.tensor([[5.0, -1.0], [2.0, 4.0]])
FIRST = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
IMAGES = torch.eye(2).repeat(5, 1)
"""Of class 0 and 1 in turn; THETA gets all of them right, as 5 > 2 and 4 > −1."""


def linear() -> nn.Module:
    return nn.Linear(2, 2, bias=False)


def one_task(*, held: Tensor | None = None, labels: Tensor | None = None, **changes: float) -> ClientTask:
    ticket = LotteryPruning(**{"threshold": 0.5, "prune": 0.25, "held_out": 0.2, **changes}, budgets={"weight": 2})
    state = ClientState() if held is None else ClientState(kept_masks({"weight": held}))
    right = torch.arange(10) % 2 if labels is None else labels
    plan = ClientPlan(LOCAL, (ticket,))
    message = Message().read_as(Reference(Broadcast(1, {"weight": THETA})))
    return ClientTask(0, 7, plan, message, Examples(IMAGES, right), state, initial={"weight": FIRST})


def taken(task: ClientTask) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    orders = task.plan.step(LotteryPruning)
    assert orders is not None
    begun = orders.begin(linear(), Beginning(task, {}, task.sent.broadcast.params))
    assert begun.rows is not None
    assert torch.equal(begun.task.examples.pair[1], task.examples.pair[1][begun.rows])
    return begun.rows, dict(begun.masks), dict(begun.weights)


def test_a_good_network_loses_its_smallest_weight_and_is_rewound() -> None:
    _, masks, weights = taken(one_task())
    assert masks["weight"].tolist() == [[True, False], [True, True]]
    assert torch.equal(weights["weight"], torch.tensor([[0.1, 0.0], [0.3, 0.4]]))


def test_a_bad_network_stays_as_the_server_has_it_under_the_clients_mask() -> None:
    held = torch.tensor([[True, True], [False, True]])
    wrong = 1 - torch.arange(10) % 2
    _, masks, weights = taken(one_task(held=held, labels=wrong))
    assert torch.equal(masks["weight"], held)
    assert weights["weight"].tolist() == [[5, -1], [0, 4]]


def test_the_threshold_must_be_exceeded() -> None:
    """One of the two held-out images has a wrong label: half of them are right."""
    [wrong, _] = sorted(set(range(10)) - set(taken(one_task())[0].tolist()))
    labels = torch.arange(10) % 2
    labels[wrong] = 1 - labels[wrong]
    assert count_active(taken(one_task(threshold=0.5, labels=labels))[1]) == {"weight": 4}
    assert count_active(taken(one_task(threshold=0.49, labels=labels))[1]) == {"weight": 3}


def test_at_its_budget_a_network_is_neither_pruned_nor_rewound() -> None:
    held = torch.tensor([[True, False], [False, True]])
    _, masks, weights = taken(one_task(held=held))
    assert torch.equal(masks["weight"], held)
    assert weights["weight"].tolist() == [[5, 0], [0, 4]]


def test_masks_shrink_to_their_budgets_and_never_below() -> None:
    held, counts = None, []
    for _ in range(4):
        held = taken(one_task(held=held, prune=0.01))[1]["weight"]
        counts.append(int(held.sum()))
    assert counts == [3, 2, 2, 2]
    assert int(taken(one_task(prune=0.99))[1]["weight"].sum()) == 2


@given(st.integers(2, 1000), st.floats(0.001, 0.999))
def test_some_images_are_held_out_but_never_all(count: int, share: float) -> None:
    assert 1 <= held_out_images(count, share) < count
    assert abs(held_out_images(count, share) - share * count) <= 1


def test_the_only_image_of_a_client_is_trained_on() -> None:
    rest, masks, _ = taken(one_task().with_data(Examples(IMAGES[:1], torch.zeros(1, dtype=torch.int64))))
    assert len(rest) == 1
    assert count_active(masks) == {"weight": 4}


TaskMaker = Callable[..., ClientTask]
TrainClient = Callable[[nn.Module, ClientTask], Client]


def lottery_task(task: TaskMaker, module: nn.Module, **changes: int) -> ClientTask:
    method = LotteryFL(local=LOCAL, sparsity=Sparsity(0.6), lottery=Lottery(threshold=0.0))
    return replace(task(method, **changes), initial=initial_model(module).params)


def test_the_same_images_are_held_out_in_every_round(module: nn.Sequential, task: TaskMaker) -> None:
    parts = []
    for round in (1, 2):
        one = lottery_task(task, module, round=round)
        orders = one.plan.step(LotteryPruning)
        assert orders is not None
        parts.append(beginning(module, one).task.examples.pair[0])
    assert len(parts[0]) == 16
    assert torch.equal(parts[0], parts[1])


def test_held_out_images_do_not_touch_the_update(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    one = lottery_task(task, module)
    orders = one.plan.step(LotteryPruning)
    assert orders is not None
    trained, _ = beginning(module, one).task.examples.pair
    inputs, labels = one.examples.pair
    spoilt = inputs.clone()
    out = [i for i, image in enumerate(inputs) if not any(torch.equal(image, other) for other in trained)]
    spoilt[out] = 100.0
    given = [one.with_data(Examples(each, labels)) for each in (inputs, spoilt)]
    updates = [finished(train_client(module, each))[0] for each in given]
    assert len(out) == 4
    assert updates[0].weight == 16
    assert all(torch.equal(value, updates[1].params[name]) for name, value in updates[0].params.items())


def test_a_client_sends_and_keeps_the_mask_that_it_trained_within(
    train_client: TrainClient, module: nn.Sequential, task: TaskMaker
) -> None:
    one = lottery_task(task, module)
    update, state = finished(train_client(module, one))
    assert update.masks is not None
    orders = one.plan.step(LotteryPruning)
    assert orders is not None
    shapes = {name: mask.shape for name, mask in update.masks.items()}
    kept = own_masks(state, shapes)
    for name, mask in update.masks.items():
        left = mask.numel() - int(mask.sum())
        assert left == min(max(1, round(0.2 * mask.numel())), mask.numel() - orders.budgets[name])
        assert torch.equal(kept[name], mask)
        assert update.params[name].shape == (int(mask.sum()),)
    whole = unpacked(update.params, positions_of(update.masks), update.masks)
    assert all(torch.equal(whole[name] != 0, mask) for name, mask in update.masks.items())


@given(st.lists(st.booleans(), min_size=1, max_size=40))
@settings(max_examples=50)
def test_masks_are_kept_eight_weights_in_a_byte(flags: list[bool]) -> None:
    mask = torch.tensor(flags).reshape(1, -1)
    kept = kept_masks({"w": mask})
    assert [value.numel() for value in kept.values()] == [(len(flags) + 7) // 8]
    assert torch.equal(own_masks(ClientState(kept), {"w": mask.shape})["w"], mask)


@pytest.fixture
def processes(module: nn.Sequential, dataset: Dataset) -> Iterator[ProcessEngine]:
    with closing(ProcessEngine(module, dataset, workers=2)) as engine:
        yield engine


def test_what_clients_keep_travels_to_workers_and_back(
    processes: ProcessEngine, module: nn.Sequential, dataset: Dataset, task: TaskMaker
) -> None:
    """Two rounds of three methods at once; the second begins with what clients kept of the first."""
    alone = ReferenceEngine(module, dataset, torch.device("cpu"))
    initial = initial_model(module).params
    methods: list[tuple[Method, WireConfig]] = [
        (LotteryFL(local=LOCAL, lottery=Lottery(threshold=0.0)), WireConfig(values="q8")),
        (LGFedAvg(local=LOCAL), WireConfig()),
        (SignSGD(local=replace(LOCAL, weigh_by="equal")), WireConfig(values="sign")),
    ]
    given = [
        replace(task(method, client=client, wire=wire), initial=initial)
        for method, wire in methods
        for client in (0, 1)
    ]
    for _ in range(2):
        plain, shared = results_of(alone, given), results_of(processes, given)
        for one, other in zip(plain, shared, strict=True):
            assert one.payload is not None
            assert other.payload == one.payload
            assert other.state.tensors.keys() == one.state.tensors.keys()
            assert all(torch.equal(other.state.tensors[name], value) for name, value in one.state.tensors.items())
        given = [replace(one, state=result.state) for one, result in zip(given, plain, strict=True)]
    assert [bool(one.state.tensors) for one in given] == [True] * 4 + [False] * 2
