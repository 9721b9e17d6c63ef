"""The server's adaptive steps, three of them by hand, on dense and on sparse updates."""

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch

from feddst.core import InitialModel, Layer, LocalTraining, ServerState, SparseSum, Update
from feddst.methods import (
    Adaptive,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedAvgMServer,
    FedDST,
    FedYogi,
    LGFedAvg,
    LotteryFL,
    PruneFL,
    Reconfiguration,
    ServerOptimizer,
)
from feddst.sparsity import Sparsity

MODEL = InitialModel(
    params={"w": torch.tensor([[4.0, -3.0], [2.0, -1.0]]), "b": torch.tensor([0.5])}, layers=(Layer("w", (2, 2), 1),)
)
OPTIONS = Adaptive(lr=0.1, beta1=0.9, beta2=0.99, tau=0.001)
ADAM = ServerOptimizer("adam")


def round_with(
    method: FedAvg, state: ServerState, w: list[float], b: float, mask: list[bool] | None = None
) -> ServerState:
    """One round in which two clients answer alike; `w` holds the active weights in their order."""
    total = SparseSum(state.masks)
    value = torch.tensor(w) if state.masks else torch.tensor(w).reshape(2, 2)
    masks = None if mask is None else {"w": torch.tensor(mask).reshape(2, 2)}
    for client in range(2):
        total.add(Update(client, state.round, client + 1, {"w": value, "b": torch.tensor([b])}, masks=masks))
    return method.aggregate(state, total)


def by_hand(kind: str, changes: list[float]) -> float:
    """b after steps in which the clients' mean lies so far above it, in plain arithmetic."""
    b, m, v, beta1 = 0.5, 0.0, 1e-6, 0.0 if kind == "adagrad" else 0.9
    for delta in changes:
        m = beta1 * m + (1 - beta1) * delta
        square = delta * delta
        if kind == "adagrad":
            v = v + square
        elif kind == "adam":
            v = 0.99 * v + 0.01 * square
        else:
            v = v - 0.01 * square * math.copysign(1, v - square)
        b += 0.1 * m / (math.sqrt(v) + 0.001)
    return b


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (FedAdagrad(adaptive=OPTIONS), "adagrad"),
        (FedAdam(adaptive=OPTIONS), "adam"),
        (FedYogi(adaptive=OPTIONS), "yogi"),
    ],
    ids=["adagrad", "adam", "yogi"],
)
def test_three_steps_by_hand(method: FedAvg, kind: str) -> None:
    state = method.init(MODEL, seed=0)
    changes = [0.25, -0.5, 0.125]
    for delta in changes:
        state = round_with(method, state, [4, -3, 2, -1], state.params["b"].item() + delta)
    assert state.params["b"].item() == pytest.approx(by_hand(kind, changes), rel=1e-4)
    assert state.params["w"].tolist() == [[4, -3], [2, -1]]  # nobody moved it
    assert state.round == 4


def test_the_three_differ() -> None:
    results = {kind: by_hand(kind, [0.25, -0.5, 0.125]) for kind in ("adagrad", "adam", "yogi")}
    assert len({round(value, 6) for value in results.values()}) == 3


def test_what_leaves_the_mask_starts_anew() -> None:
    method = FedDST(server=ADAM, sparsity=Sparsity(0.5), adaptive=OPTIONS)
    state = method.init(MODEL, seed=0)
    assert state.masks["w"].tolist() == [[True, True], [False, False]]
    state = round_with(method, state, [5, -4], 0.5)
    assert state.extra["m/w"][0].tolist() == pytest.approx([0.1, -0.1])
    # Both clients drop the second weight for the third, and train that to 9: it is now the largest.
    state = round_with(method, state, [5.0, 9.0], 0.5, mask=[True, False, True, False])
    assert state.masks["w"].tolist() == [[True, False], [True, False]]
    assert state.extra["m/w"][0, 1] == 0
    assert state.extra["v/w"][0, 1].item() == pytest.approx(1e-6)
    assert state.extra["m/w"][1, 0].item() == pytest.approx(0.9)  # 0.1·(9 − 0)
    assert state.params["w"][0, 1] == 0


def test_what_enters_may_begin_with_the_mean_of_its_layer() -> None:
    method = FedDST(server=ADAM, sparsity=Sparsity(0.5), adaptive=replace(OPTIONS, entering="layer"))
    state = round_with(method, method.init(MODEL, seed=0), [5, -5], 0.5)  # by 1 and 2, so that v is 0.01 and 0.04
    v = state.extra["v/w"]
    assert v.flatten().tolist() == pytest.approx([0.01, 0.04, 0.025, 0.025], abs=1e-6)
    assert state.extra["m/w"].flatten().tolist() == pytest.approx([0.1, -0.2, 0, 0])
    theta = state.params["w"][0, 0].item()
    state = round_with(method, state, [theta, 9.0], 0.5, mask=[True, False, True, False])
    stayed, entered = 0.99 * 0.01, 0.99 * 0.025 + 0.01 * 81
    assert state.extra["v/w"].flatten().tolist() == pytest.approx(
        [stayed, (stayed + entered) / 2, entered, (stayed + entered) / 2], abs=1e-5
    )
    assert state.extra["m/w"].flatten().tolist() == pytest.approx([0.09, 0, 0.9, 0])


def test_a_layer_without_weights_has_no_mean_to_begin_with() -> None:
    method = FedDST(server=ADAM, sparsity=Sparsity(0.5), adaptive=replace(OPTIONS, entering="layer"))
    state = method.init(MODEL, seed=0)
    kept = method.forget(state.extra, {"w": torch.zeros(2, 2, dtype=torch.bool)})
    assert kept["v/w"].flatten().tolist() == pytest.approx([1e-6] * 4)


def test_a_weight_that_nobody_holds_does_not_move() -> None:
    method = FedDST(server=ADAM, sparsity=Sparsity(0.5), adaptive=OPTIONS)
    state = method.init(MODEL, seed=0)
    stepped, _ = method.step(state, _one_holder(state))
    assert stepped["w"][0, 1].item() == -3
    assert stepped["w"][0, 0].item() != 4


def _one_holder(state: ServerState) -> SparseSum:
    total = SparseSum(state.masks)
    mask = {"w": torch.tensor([[True, False], [False, False]])}
    total.add(Update(0, 1, 1, {"w": torch.tensor([6.0]), "b": torch.tensor([0.5])}, masks=mask))
    return total


def test_momentum_on_the_server_is_not_momentum_on_the_client() -> None:
    """The same two answers: the client's method takes the mean, the server's adds what it was moving at."""
    server, client = FedAvgMServer(server=ServerOptimizer("momentum", 0.5)), FedAvgM(local=LocalTraining(momentum=0.5))
    ends = []
    methods: list[FedAvg] = [server, client]
    for method in methods:
        state = method.init(MODEL, seed=0)
        for b in (1.0, 2.0):
            state = round_with(method, state, [4, -3, 2, -1], b)
        ends.append(state.params["b"].item())
    assert ends == [2.25, 2.0]
    assert client.plan(client.init(MODEL, 0), 0).local.momentum == 0.5


@pytest.mark.parametrize("kind", ["adagrad", "adam", "yogi"])
def test_any_optimizer_steps_for_any_sparse_method(kind: Literal["adagrad", "adam", "yogi"]) -> None:
    method = FedDST(sparsity=Sparsity(0.5), server=ServerOptimizer(kind), adaptive=OPTIONS)
    state = round_with(method, method.init(MODEL, seed=0), [5, -4], 1.5)
    assert int(state.masks["w"].sum()) == 2
    assert state.params["b"].item() == pytest.approx(by_hand(kind, [1.0]), rel=1e-4)


@pytest.mark.parametrize("kind", ["momentum", "adagrad", "adam", "yogi"])
def test_layers_that_stay_with_clients_are_not_stepped_on(kind: Literal["momentum", "adagrad", "adam", "yogi"]) -> None:
    params = {"a": torch.tensor([[4.0, -3.0]]), "b": torch.tensor([[2.0, -1.0]])}
    layers = (Layer("a", (1, 2)), Layer("b", (1, 2)))
    method = LGFedAvg(server=ServerOptimizer(kind), adaptive=OPTIONS)
    state = method.init(InitialModel(params, layers), seed=0)
    for r in (1, 2):
        total = SparseSum({})
        total.add(Update(0, r, 1, {"b": torch.tensor([[3.0, -1.0]])}))
        state = method.aggregate(state, total)
    assert torch.equal(state.params["a"], params["a"])
    assert state.params["b"][0, 0] > 2
    assert state.params["b"][0, 1] == -1
    assert set(method.broadcast(state, 0).params) == {"b"}


def test_what_a_lottery_begins_with_is_kept_beside_what_the_server_keeps() -> None:
    method = LotteryFL(server=ADAM, adaptive=OPTIONS)
    state = method.init(MODEL, seed=0)
    assert {"initial/w", "initial/b", "m/w", "v/w", "m/b", "v/b"} == set(state.extra)
    after, _ = method.step(state, _nobody(state))
    assert all(torch.equal(after[name], value) for name, value in state.params.items())


def test_the_first_weights_that_prunefl_finds_are_taken_over_whole() -> None:
    method = PruneFL(server=ADAM, adaptive=OPTIONS, prunefl=Reconfiguration(layer_times="equal"))
    state = method.init(MODEL, seed=0)
    total = SparseSum(state.masks)
    kept = {"w": torch.tensor([[1.0, 0.0], [1.0, 1.0]]), "b": torch.ones(1)}
    params = {"w": torch.tensor([7.0, 0.0, 6.0, 5.0]), "b": torch.tensor([1.5])}
    total.add(Update(0, 0, 1, params, extra={"kept": kept}))
    after = method.aggregate(state, total)
    assert after.params["w"].tolist() == [[7, 0], [6, 5]]
    assert after.params["b"].tolist() == [1.5]
    assert after.masks["w"].tolist() == [[True, False], [True, True]]


def _nobody(state: ServerState) -> SparseSum:
    """Clients that send what they were sent."""
    total = SparseSum({})
    total.add(Update(0, 1, 1, dict(state.params)))
    return total
