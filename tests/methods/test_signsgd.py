"""Stochastic-sign SGD by hand and by chance: votes, their expectation, the majority, and digits."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from feddst.clients.client import finished
from feddst.clients.reference import train_client
from feddst.clients.steps.report import signs
from feddst.core import Examples, InitialModel, Layer, LocalTraining, SparseSum, Update
from feddst.data import Dataset, federate
from feddst.engines import ReferenceEngine, Sink
from feddst.errors import ModelError, OptionError, TrainingError
from feddst.methods import SignSGD, Votes
from feddst.models import initial_model, make_module
from feddst.options import updated
from feddst.runtime import RunConfig, run
from feddst.runtime.config import config_of, make_method, refuse_ineffective
from feddst.runtime.loop import Silent, play
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.wire import ClientTask, Message, Reference

EQUAL = LocalTraining(weigh_by="equal")
MODEL = InitialModel(params={"w": torch.tensor([[4.0, -3.0, 2.0]])}, layers=(Layer("w", (1, 3)),))


def votes(*signs: float) -> Update:
    return Update(0, 1, 1, {}, extra={"sign": {"w": torch.tensor([signs], dtype=torch.float32)}})


def test_the_server_steps_along_the_majority_and_not_at_all_at_a_tie() -> None:
    method = SignSGD(sign=Votes(lr=0.5))
    state = method.init(MODEL, seed=0)
    total = SparseSum(state.masks)
    for one in (votes(1, 1, -1), votes(1, -1, -1)):
        total.add(one)
    after = method.aggregate(state, total)
    assert after.params["w"].tolist() == [[3.5, -3.0, 2.5]]
    total.add(votes(-1, -1, -1))
    assert method.aggregate(state, total).params["w"].tolist() == [[3.5, -2.5, 2.5]]
    assert after.round == 2


def task_of(module: nn.Module, inputs: Tensor, labels: Tensor, *, bound: float = 0.1, client: int = 0) -> ClientTask:
    method = SignSGD(local=EQUAL, sign=Votes(bound=bound))
    state = method.init(initial_model(module), seed=7)
    message = Message().read_as(Reference(method.broadcast(state, client)))
    return ClientTask(client, 7, method.plan(state, client), message, Examples(inputs, labels))


def any_task(client: int = 0) -> ClientTask:
    return task_of(nn.Linear(1, 2), torch.ones(2, 1), torch.tensor([0, 1]), client=client)


@settings(max_examples=30)
@given(st.floats(-1, 1), st.sampled_from([0.01, 0.1, 3.0]))
def test_a_vote_is_up_with_probability_b_plus_g_over_2b(share: float, bound: float) -> None:
    """The share of 20,000 votes has a standard deviation of at most 0.5/√20000: five of those are allowed."""
    g = torch.full((20_000,), share * bound)
    found = signs({"w": g}, bound, *any_task().draw)["w"]
    assert found.abs().min() == found.abs().max() == 1
    up = (found > 0).float().mean().item()
    assert up == pytest.approx((bound + share * bound) / (2 * bound), abs=2.5 / math.sqrt(20_000))


def test_votes_times_the_bound_are_the_gradient_on_average() -> None:
    """Over 100 clients, and 40 weights that have the same gradient."""
    g = torch.tensor([-0.1, -0.03, 0.0, 0.007, 0.09])
    total = sum(
        (signs({"w": g.repeat(40)}, 0.1, *any_task(client).draw)["w"] for client in range(100)), torch.zeros(200)
    )
    mean = 0.1 * total.reshape(40, 5).sum(dim=0) / 4000
    assert mean.tolist() == pytest.approx(g.tolist(), abs=0.1 * 5 / math.sqrt(4000))


@pytest.mark.parametrize("beyond", [1.0, 1.5, 1e9])
def test_gradients_at_the_bound_and_beyond_leave_nothing_to_chance(beyond: float) -> None:
    g = torch.cat([torch.full((5000,), 0.1 * beyond), torch.full((5000,), -0.1 * beyond)])
    assert torch.equal(signs({"w": g}, 0.1, *any_task().draw)["w"], torch.sign(g))


def test_clients_and_rounds_draw_for_themselves() -> None:
    still = {"w": torch.zeros(200)}
    one = any_task()
    later = one.read_as(Reference(replace(one.sent.broadcast, round=2)))
    drawn = [one, any_task(client=1), later, replace(one, seed=8)]
    found = [signs(still, 0.1, *task.draw)["w"] for task in drawn]
    assert torch.equal(found[0], signs(still, 0.1, *one.draw)["w"])
    assert not any(torch.equal(found[0], other) for other in found[1:])


def test_a_client_votes_on_the_gradient_of_all_its_images_and_changes_nothing() -> None:
    """With a tiny bound every vote is the sign of the gradient; L2 regularisation has no part in it."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    inputs, labels = torch.randn(300, 2, 3), torch.arange(300) % 3
    update, state = finished(train_client(module, task_of(module, inputs, labels, bound=1e-12)))
    module.eval()
    torch.autograd.backward(F.cross_entropy(module(inputs), labels))
    for name, p in module.named_parameters():
        assert p.grad is not None
        sure = p.grad.abs() > 1e-6
        assert sure.any()
        assert torch.equal(update.extra["sign"][name][sure], torch.sign(p.grad)[sure])
    assert not update.params
    assert not update.buffers
    assert not state.tensors
    assert update.weight == 1


def test_a_frozen_parameter_cannot_be_voted_on() -> None:
    module = nn.Linear(1, 2)
    module.bias.requires_grad_(False)
    with pytest.raises(ModelError, match="bias is frozen"):
        finished(train_client(module, task_of(module, torch.ones(2, 1), torch.tensor([0, 1]))))


def test_a_gradient_that_is_no_number_is_not_voted_on() -> None:
    module = nn.Linear(1, 2)
    with pytest.raises(TrainingError, match="client 0 diverged in round 1: its gradient of bias is not finite"):
        finished(train_client(module, task_of(module, torch.full((2, 1), math.inf), torch.tensor([0, 1]))))


def test_what_the_method_fixes_cannot_be_chosen() -> None:
    chosen = {"wire.values": "q4", "wire.feedback": True, "local.weigh_by": "images", "local.momentum": 0.5}
    for name, value in chosen.items():
        with pytest.raises(OptionError, match=f"{name} is fixed at .* by sign-sgd"):
            refuse_ineffective([config_of({"method": "sign-sgd"})], {name: value})
    assert make_method(updated(RunConfig(), {"method": "sign-sgd"})).local.weigh_by == "equal"


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 24), nn.ReLU(), nn.Linear(24, 10))


N = 784 * 24 + 24 + 240 + 10
SMALL = {
    "method": "sign-sgd",
    "rounds": 40,
    "eval_every": 10,
    "data.clients": 10,
    "cohort.size": 5,
    "engine.workers": 1,
}


class StopAfter(Silent):
    def __init__(self, last: int) -> None:
        self.last, self.round = last, 0

    def row(self, run: Run, row: Row) -> None:
        self.round = row.round

    def stop(self) -> bool:
        return self.round >= self.last


def test_a_federation_of_voters_learns_digits_with_one_bit_a_weight(digits: Dataset) -> None:
    result = run(updated(RunConfig(), SMALL), model=network, data=digits, watcher=Silent())
    assert result.summary.final > 0.6  # ten classes: chance is 0.1
    row = result.rows[-1]
    assert row.upload_bytes == 40 * 5 * (48 + math.ceil(N / 8))
    assert row.download_bytes == 40 * 5 * (48 + 4 * N)
    assert row.upload_bits == 40 * 5 * N
    assert row.train_loss is None
    assert row.score_personal is None


def test_a_resumed_run_is_the_unbroken_one(digits: Dataset, tmp_path: Path) -> None:
    config = updated(RunConfig(), {**SMALL, "rounds": 4, "eval_every": 2, "checkpoint_every": 2})
    whole, part = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "part")
    run(config, model=network, data=digits, out=whole.path, watcher=Silent())
    run(config, model=network, data=digits, out=part.path, watcher=StopAfter(1))
    run(config, model=network, data=digits, out=part.path, resume=True, watcher=Silent())
    assert part.checkpoint.read_bytes() == whole.checkpoint.read_bytes()
    assert whole.stored_config().wire.values == "sign"


def test_nobody_has_two_votes(digits: Dataset, rewritten: Callable[[bytes, int], bytes]) -> None:
    class Stuffing(ReferenceEngine):
        def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
            for index, task in enumerate(tasks):
                result = self.answer(task)
                assert result.payload is not None
                sink.result(index, replace(result, payload=rewritten(result.payload, 2)) if index == 0 else result)

    config = updated(RunConfig(), {**SMALL, "rounds": 1})
    one = Run(config, federate(config.data, 0, digits), make_module(network, 0))
    play([one], Stuffing(network(), digits, torch.device("cpu")), Silent())
    assert (one.rows[0].refused, one.rows[0].clients) == (1, 4)


@pytest.fixture
def rewritten() -> Callable[[bytes, int], bytes]:
    """A payload that claims another weight."""
    from feddst.wire.header import SIZE, read_header
    from feddst.wire.payload import join

    def rewrite(payload: bytes, weight: int) -> bytes:
        header = replace(read_header(memoryview(payload))[0], weight=weight)
        return join(header, b"", b"", payload[SIZE:])

    return rewrite
