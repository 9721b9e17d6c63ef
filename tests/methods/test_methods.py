"""Each method's own step, on a few weights worked out by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feddst.clients.steps import Proximal, Readjust
from feddst.core import (
    InitialModel,
    Layer,
    LocalTraining,
    ServerState,
    SparseSum,
    Update,
    count_active,
    packed,
    positions_of,
)
from feddst.errors import OptionError
from feddst.methods import (
    METHODS,
    FedAvg,
    FedAvgM,
    FedAvgMServer,
    FedDST,
    FedProx,
    RandomMask,
    ServerOptimizer,
)
from feddst.sparsity import Sparsity, Timetable

MODEL = InitialModel(
    params={"w": torch.tensor([[4.0, -3.0], [2.0, -1.0]]), "b": torch.tensor([0.5])}, layers=(Layer("w", (2, 2), 1),)
)


def answer(state: ServerState, w: list[list[float]], b: float, weight: int = 1) -> Update:
    params = {"w": torch.tensor(w), "b": torch.tensor([b])}
    return Update(client=0, round=state.round, weight=weight, params=packed(params, positions_of(state.masks)))


def aggregate(method: FedAvg, state: ServerState, *updates: Update) -> ServerState:
    total = SparseSum(state.masks)
    for update in updates:
        total.add(update)
    return method.aggregate(state, total)


def test_fedavg_takes_the_weighted_mean() -> None:
    state = FedAvg().init(MODEL, seed=0)
    after = aggregate(FedAvg(), state, answer(state, [[4, 4], [4, 4]], 1.0, 1), answer(state, [[0, 0], [8, 8]], 3.0, 3))
    assert after.params["w"].tolist() == [[1, 1], [7, 7]]
    assert after.params["b"].tolist() == [2.5]
    assert after.round == 2
    assert not after.masks


def test_server_momentum_adds_up_over_rounds() -> None:
    method = FedAvgMServer(server=ServerOptimizer("momentum", 0.5))
    state = method.init(MODEL, seed=0)
    # b = 0.5. Round 1: Δ = 1 − 0.5, v = 0.5, b = 1. Round 2: clients send 2, Δ = 1, v = 0.25 + 1, b = 2.25.
    state = aggregate(method, state, answer(state, [[4, -3], [2, -1]], 1.0))
    assert state.params["b"].tolist() == [1.0]
    state = aggregate(method, state, answer(state, [[4, -3], [2, -1]], 2.0))
    assert state.params["b"].tolist() == [2.25]
    assert state.extra["velocity/b"].tolist() == [1.25]
    assert state.params["w"].tolist() == [[4, -3], [2, -1]]


def test_a_server_with_a_learning_rate_goes_a_part_of_the_way() -> None:
    """b = 0.5 and clients send 1.5 and 2.5, the second three times as heavy: Δ = 1.75, a fifth of it is 0.35."""
    method = FedAvg(server=ServerOptimizer(lr=0.2))
    state = method.init(MODEL, seed=0)
    same = [[4.0, -3.0], [2.0, -1.0]]
    after = aggregate(method, state, answer(state, same, 1.5), answer(state, [[8, -3], [2, -1]], 2.5, 3))
    assert after.params["b"].tolist() == pytest.approx([0.85])
    assert after.params["w"].flatten().tolist() == pytest.approx([4.6, -3, 2, -1])  # 4 + 0.2·(7 − 4)


def test_server_momentum_with_a_learning_rate() -> None:
    """b = 0.5. Round 1: Δ = 0.5, v = 0.5, b = 0.75. Round 2: clients send 1.75, Δ = 1, v = 1.25, b = 0.75 + 0.625."""
    method = FedAvgMServer(server=ServerOptimizer("momentum", 0.5, lr=0.5))
    state = method.init(MODEL, seed=0)
    for b in (1.0, 1.75):
        state = aggregate(method, state, answer(state, [[4, -3], [2, -1]], b))
    assert state.params["b"].tolist() == pytest.approx([1.375])


def test_feddst_with_a_learning_rate_on_the_server() -> None:
    """What a client drops stays as it is for those that hold it; what it grows counts from 0; layers keep budgets."""
    method = FedDST(sparsity=Sparsity(0.5), server=ServerOptimizer(lr=0.5))
    state = method.init(MODEL, seed=0)
    masks = {"w": torch.tensor([[True, False], [True, False]])}
    grown = Update(0, 1, 1, {"w": torch.tensor([6.0, 8.0]), "b": torch.tensor([1.5])}, masks=masks)
    after = aggregate(method, state, grown, answer(state, [[4, -3], [0, 0]], 0.5))
    # 4 + 0.5·(5 − 4); −3, held by one alone, which left it; 0 + 0.5·8, by one alone: the two largest stay.
    assert after.params["w"].tolist() == [[4.5, 0], [4, 0]]
    assert after.params["b"].tolist() == [0.75]


def test_client_momentum_and_server_momentum_are_two_things() -> None:
    assert METHODS["fedavg"].pins == {"local.momentum": 0.0}
    assert METHODS["fedavgm-server"].pins == {"local.momentum": 0.0, "server.optimizer": "momentum"}
    assert METHODS["fedavgm"].pins == {}
    assert FedAvgM().plan(FedAvgM().init(MODEL, 0), 0).local.momentum == 0.9


def test_fedprox_asks_for_the_proximal_term_and_takes_partial_work() -> None:
    method = FedProx(proximal=Proximal(mu=0.3))
    plan = method.plan(method.init(MODEL, 0), 0)
    assert plan.step(Proximal) == Proximal(mu=0.3)
    assert plan.shortened(3).local.epochs == 3
    assert method.accepts_partial
    assert FedProx(proximal=Proximal(mu=0.0)).accepts_partial
    assert not FedAvgM().accepts_partial
    assert FedAvgM().plan(method.init(MODEL, 0), 0).step(Proximal) is None


def test_randommask_keeps_the_largest_initial_weights_for_ever() -> None:
    method = RandomMask(sparsity=Sparsity(0.5))
    state = method.init(MODEL, seed=0)
    assert state.params["w"].tolist() == [[4, -3], [0, 0]]
    after = aggregate(method, state, answer(state, [[1, 1], [0, 0]], 1.0), answer(state, [[3, 5], [0, 0]], 3.0))
    assert after.params["w"].tolist() == [[2, 3], [0, 0]]
    assert torch.equal(after.masks["w"], state.masks["w"])
    assert method.plan(after, 0).step(Readjust) is None


def test_feddst_readjusts_when_the_timetable_says() -> None:
    method = FedDST(sparsity=Sparsity(0.5), readjust=Timetable(alpha=0.5, every=2, until=4))
    state = method.init(MODEL, seed=0)
    orders = {}
    for _ in range(6):
        orders[state.round] = method.plan(state, 0).step(Readjust)
        state = state.next()
    assert [r for r, order in orders.items() if order is not None] == [2]
    assert orders[2] is not None
    assert (orders[2].drop, orders[2].budgets, orders[2].epoch) == ({"w": 1}, {"w": 2}, 10)


def test_feddst_with_a_proximal_term_is_both() -> None:
    method = FedDST(sparsity=Sparsity(0.5), readjust=Timetable(alpha=0.5, every=1), proximal=Proximal(mu=2.0))
    plan = method.plan(method.init(MODEL, 0), 0)
    assert plan.step(Readjust) is not None
    assert plan.step(Proximal) == Proximal(mu=2.0)
    assert method.accepts_partial


def test_feddst_refuses_a_readjustment_after_the_last_epoch() -> None:
    method = FedDST(local=LocalTraining(epochs=3), readjust=Timetable(after_epoch=4))
    with pytest.raises(OptionError, match=r"readjust.after_epoch must be at most local.epochs \(3\), got 4"):
        method.check()


def test_ties_at_the_server_go_to_what_was_held_before() -> None:
    """Two weights are kept. Both clients drop the second; one takes it back at 0, the other grows the third at 0."""
    method = FedDST(sparsity=Sparsity(0.5))
    state = method.init(MODEL, seed=0)
    total = SparseSum(state.masks)
    for client, grown in enumerate((1, 2)):
        mask = torch.zeros(4, dtype=torch.bool)
        mask[[0, grown]] = True
        params = {"w": torch.tensor([5.0, 0.0]), "b": torch.zeros(1)}
        total.add(Update(client=client, round=1, weight=1, params=params, masks={"w": mask.reshape(2, 2)}))
    assert method.aggregate(state, total).masks["w"].tolist() == [[True, True], [False, False]]


def test_server_momentum_and_feddst_compose() -> None:
    method = FedDST(sparsity=Sparsity(0.5), server=ServerOptimizer("momentum", 0.5))
    state = method.init(MODEL, seed=0)
    for sent in (1.0, 2.0):
        state = aggregate(method, state, answer(state, [[4, -3], [0, 0]], sent))
    assert state.params["b"].tolist() == [2.25]
    assert state.masks["w"].tolist() == [[True, True], [False, False]]


@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0, 0.95))
def test_feddst_ends_every_aggregation_with_exact_budgets(seed: int, clients: int, level: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (4, 3), "b": (2, 4)}
    params = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    layers = tuple(Layer(name, shape) for name, shape in shapes.items())
    method = FedDST(sparsity=Sparsity(level, "uniform"))
    state = method.init(InitialModel(params=params, layers=layers), seed=0)
    total = SparseSum(state.masks)
    for client in range(clients):
        theta = {name: torch.randn(shape, generator=generator).round() for name, shape in shapes.items()}
        scores = {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
        masks = {name: _random_mask(scores[name], state.budgets[name]) for name in shapes}
        held = packed(theta, positions_of(masks))
        total.add(Update(client=client, round=1, weight=client + 1, params=held, masks=masks))
    after = method.aggregate(state, total)
    assert count_active(after.masks) == dict(state.budgets)
    for name, mask in after.masks.items():
        assert not after.params[name][~mask].any()
        assert not (mask & ~total.held()[name]).any()


def _random_mask(score: torch.Tensor, count: int) -> torch.Tensor:
    mask = torch.zeros(score.numel(), dtype=torch.bool)
    mask[score.flatten().argsort()[:count]] = True
    return mask.reshape(score.shape)
