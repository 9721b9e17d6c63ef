"""A lottery ticket by hand; and everything that clients keep, in worker processes."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from feddst.clients import Assignment, Job, Outcome
from feddst.clients.client import Beginning, beginning
from feddst.clients.steps import LotteryPruning
from feddst.clients.steps.lottery import held_out_images, kept_masks, own_masks
from feddst.core import Broadcast, ClientPlan, ClientState, LocalTraining, count_active, positions_of, unpacked
from feddst.data import Dataset
from feddst.engines import ProcessEngine, ReferenceEngine
from feddst.engines.base import replies_of
from feddst.methods import LGFedAvg, Lottery, LotteryFL, Method, SignSGD
from feddst.models import initial_model
from feddst.sparsity import Sparsity
from feddst.wire import WireConfig

LOCAL = LocalTraining(epochs=2, batch=8, lr=0.1, momentum=0.9)
THETA = torch.tensor([[5.0, -1.0], [2.0, 4.0]])
FIRST = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
IMAGES = torch.eye(2).repeat(5, 1)
"""Of class 0 and 1 in turn; THETA gets all of them right, as 5 > 2 and 4 > −1."""


def linear() -> nn.Module:
    return nn.Linear(2, 2, bias=False)


def one_job(*, held: Tensor | None = None, labels: Tensor | None = None, **changes: float) -> Job:
    ticket = LotteryPruning(**{"threshold": 0.5, "prune": 0.25, "held_out": 0.2, **changes}, budgets={"weight": 2})
    state = ClientState() if held is None else ClientState(kept_masks({"weight": held}))
    right = torch.arange(10) % 2 if labels is None else labels
    plan = ClientPlan(LOCAL, (ticket,))
    return Job(0, 7, Broadcast(1, {"weight": THETA}), plan, IMAGES, right, state, {"weight": FIRST})


def taken(job: Job) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    orders = job.plan.step(LotteryPruning)
    assert orders is not None
    begun = orders.begin(linear(), Beginning(job, {}, job.broadcast.params))
    assert begun.images is not None
    return begun.images, dict(begun.masks), dict(begun.weights)


def test_a_good_network_loses_its_smallest_weight_and_is_rewound() -> None:
    _, masks, weights = taken(one_job())
    assert masks["weight"].tolist() == [[True, False], [True, True]]
    assert torch.equal(weights["weight"], torch.tensor([[0.1, 0.0], [0.3, 0.4]]))


def test_a_bad_network_stays_as_the_server_has_it_under_the_clients_mask() -> None:
    held = torch.tensor([[True, True], [False, True]])
    wrong = 1 - torch.arange(10) % 2
    _, masks, weights = taken(one_job(held=held, labels=wrong))
    assert torch.equal(masks["weight"], held)
    assert weights["weight"].tolist() == [[5, -1], [0, 4]]


def test_the_threshold_must_be_exceeded() -> None:
    """One of the two held-out images has a wrong label: half of them are right."""
    [wrong, _] = sorted(set(range(10)) - set(taken(one_job())[0].tolist()))
    labels = torch.arange(10) % 2
    labels[wrong] = 1 - labels[wrong]
    assert count_active(taken(one_job(threshold=0.5, labels=labels))[1]) == {"weight": 4}
    assert count_active(taken(one_job(threshold=0.49, labels=labels))[1]) == {"weight": 3}


def test_at_its_budget_a_network_is_neither_pruned_nor_rewound() -> None:
    held = torch.tensor([[True, False], [False, True]])
    _, masks, weights = taken(one_job(held=held))
    assert torch.equal(masks["weight"], held)
    assert weights["weight"].tolist() == [[5, 0], [0, 4]]


def test_masks_shrink_to_their_budgets_and_never_below() -> None:
    held, counts = None, []
    for _ in range(4):
        held = taken(one_job(held=held, prune=0.01))[1]["weight"]
        counts.append(int(held.sum()))
    assert counts == [3, 2, 2, 2]
    assert int(taken(one_job(prune=0.99))[1]["weight"].sum()) == 2


@given(st.integers(2, 1000), st.floats(0.001, 0.999))
def test_some_images_are_held_out_but_never_all(count: int, share: float) -> None:
    assert 1 <= held_out_images(count, share) < count
    assert abs(held_out_images(count, share) - share * count) <= 1


def test_the_only_image_of_a_client_is_trained_on() -> None:
    job = one_job()
    rest, masks, _ = taken(replace(job, inputs=IMAGES[:1], labels=torch.zeros(1, dtype=torch.int64)))
    assert len(rest) == 1
    assert count_active(masks) == {"weight": 4}


JobMaker = Callable[..., Job]
TrainClient = Callable[[nn.Module, Job], Outcome]


def lottery_job(job: JobMaker, module: nn.Module, **changes: int) -> Job:
    method = LotteryFL(local=LOCAL, sparsity=Sparsity(0.6), lottery=Lottery(threshold=0.0))
    return replace(job(method, **changes), initial=initial_model(module).params)


def test_the_same_images_are_held_out_in_every_round(module: nn.Sequential, job: JobMaker) -> None:
    parts = []
    for round in (1, 2):
        one = lottery_job(job, module, round=round)
        orders = one.plan.step(LotteryPruning)
        assert orders is not None
        parts.append(beginning(module, one).job.inputs)
    assert len(parts[0]) == 16
    assert torch.equal(parts[0], parts[1])


def test_held_out_images_do_not_touch_the_update(
    train_client: TrainClient, module: nn.Sequential, job: JobMaker
) -> None:
    one = lottery_job(job, module)
    orders = one.plan.step(LotteryPruning)
    assert orders is not None
    trained = beginning(module, one).job.inputs
    spoilt = one.inputs.clone()
    out = [i for i, image in enumerate(one.inputs) if not any(torch.equal(image, other) for other in trained)]
    spoilt[out] = 100.0
    updates = [train_client(module, replace(one, inputs=inputs)).update for inputs in (one.inputs, spoilt)]
    assert len(out) == 4
    assert updates[0].weight == 16
    assert all(torch.equal(value, updates[1].params[name]) for name, value in updates[0].params.items())


def test_a_client_sends_and_keeps_the_mask_that_it_trained_within(
    train_client: TrainClient, module: nn.Sequential, job: JobMaker
) -> None:
    one = lottery_job(job, module)
    outcome = train_client(module, one)
    update = outcome.update
    assert update.masks is not None
    orders = one.plan.step(LotteryPruning)
    assert orders is not None
    shapes = {name: mask.shape for name, mask in update.masks.items()}
    kept = own_masks(outcome.state, shapes)
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


AssignmentMaker = Callable[..., Assignment]


@pytest.fixture
def processes(module: nn.Sequential, dataset: Dataset) -> Iterator[ProcessEngine]:
    with closing(ProcessEngine(module, dataset, workers=2)) as engine:
        yield engine


def test_what_clients_keep_travels_to_workers_and_back(
    processes: ProcessEngine, module: nn.Sequential, dataset: Dataset, assignment: AssignmentMaker
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
        replace(assignment(method, client=client, wire=wire), initial=initial)
        for method, wire in methods
        for client in (0, 1)
    ]
    for _ in range(2):
        plain, shared = replies_of(alone, given), replies_of(processes, given)
        for index, reply in plain.items():
            assert shared[index].payload == reply.payload
            assert shared[index].state.tensors.keys() == reply.state.tensors.keys()
            kept = shared[index].state.tensors
            assert all(torch.equal(kept[name], value) for name, value in reply.state.tensors.items())
        given = [replace(one, state=plain[index].state) for index, one in enumerate(given)]
    assert [bool(one.state.tensors) for one in given] == [True] * 4 + [False] * 2
