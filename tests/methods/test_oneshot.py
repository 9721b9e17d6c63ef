"""SNIP and GraSP: their scores, which weights stay, and whole runs that begin with round 0."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st
from torch import Tensor, nn

import feddst
from feddst.clients.client import finished
from feddst.clients.reference import train_client
from feddst.core import (
    Examples,
    InitialModel,
    Layer,
    LocalTraining,
    ServerState,
    SparseSum,
    Tensors,
    Update,
    count_active,
    masked,
    minibatches,
    packed,
    positions_of,
)
from feddst.data import Dataset
from feddst.errors import ModelError, OptionError
from feddst.methods import METHODS, SNIP, GraSP, OneShot, RandomMask
from feddst.methods.oneshot import OneShotPruning
from feddst.models import initial_model, make_module
from feddst.options import updated
from feddst.runtime import Result, RunConfig, run
from feddst.runtime.config import config_of, refuse_ineffective
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import GIB, Row
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.sparsity import Sparsity
from feddst.wire import ClientTask, MaskFacts, Message, Reference, model_layout
from feddst.wire.header import SIZE as HEADER

BOTH = pytest.mark.parametrize("method", ["snip", "grasp"])


# Scores, on a network of 3, 4 and 3 units, without automatic differentiation: by central differences in float64

IMAGES, LABELS = (
    torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    torch.arange(12) % 3,
)
ALL = torch.arange(12)


def smooth_network(seed: int) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def flat(params: Tensors) -> Tensor:
    return torch.cat([value.detach().reshape(-1) for value in params.values()])


def loss_at(theta: Tensor, temperature: float, images: Tensor = ALL) -> Tensor:
    """The mean loss [...] of that network with the parameters theta [..., 31] on some of the images."""
    w, b, v, c = torch.split(theta, [12, 4, 12, 3], dim=-1)
    hidden = torch.tanh(IMAGES @ w.reshape(*w.shape[:-1], 4, 3).mT + b.unsqueeze(-2))
    outputs = hidden @ v.reshape(*v.shape[:-1], 3, 4).mT + c.unsqueeze(-2)
    chances = torch.log_softmax(outputs / temperature, dim=-1)
    return -chances[..., images, LABELS[images]].mean(dim=-1)


def slope(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """The gradient [..., n] of a function from [..., n] to [...]."""
    step = 1e-3 * torch.eye(at.shape[-1], dtype=at.dtype)
    return (function(at.unsqueeze(-2) + step) - function(at.unsqueeze(-2) - step)) / 2e-3


def reported(method: OneShotPruning, module: nn.Sequential) -> tuple[ServerState, Tensors]:
    """The state before round 0, and what a client reports in it."""
    state = method.init(initial_model(module), seed=0)
    sent = method.broadcast(state, 0)
    # Float64 is not sent as bytes, and so has no layout of its own.
    facts = MaskFacts(sent.masks, model_layout({name: value.float() for name, value in sent.params.items()}, {}))
    message = Message().read_as(Reference(sent, facts))
    task = ClientTask(0, 0, method.plan(state, 0), message, Examples(IMAGES, LABELS))
    update, _ = finished(train_client(module, task))
    assert not update.params
    assert not update.buffers
    return state, update.extra[method.report.kind]


def assert_near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("seed", range(5))
def test_snip_scores_how_fast_the_loss_changes_as_a_weight_fades(seed: int) -> None:
    state, gradient = reported(SNIP(), smooth_network(seed))
    theta = flat(state.params)
    expected = slope(lambda strength: loss_at(strength * theta, temperature=1.0), torch.ones_like(theta))
    assert_near(SNIP().worth(theta, flat(gradient)), expected.abs())


WEIGHTS = torch.tensor([True] * 12 + [False] * 4 + [True] * 12 + [False] * 3)
"""Which of the 31 parameters may be pruned."""


@pytest.mark.parametrize("seed", range(5))
def test_grasp_scores_how_fast_the_squared_gradient_changes_as_a_weight_fades(seed: int) -> None:
    """½‖g‖² falls by θ⊙Hg, where g is the gradient of the prunable weights alone."""
    state, product = reported(GraSP(), smooth_network(seed))
    theta = flat(state.params)

    def half_squared(strength: Tensor) -> Tensor:
        g = slope(lambda moved: loss_at(moved, temperature=200.0), strength * theta)
        return (g * WEIGHTS).square().sum(dim=-1) / 2

    found, expected = GraSP().worth(theta, flat(product)), slope(half_squared, torch.ones_like(theta))
    assert_near(found[WEIGHTS], expected[WEIGHTS])
    assert not found[~WEIGHTS].any()


@pytest.mark.parametrize("seed", range(5))
def test_grasp_is_told_how_the_gradient_changes_along_itself(seed: int) -> None:
    """Hg = (g(θ + εg) − g(θ − εg)) / 2ε, here with ε = 1, since g is small."""
    state, product = reported(GraSP(), smooth_network(seed))
    assert_near(flat(product), along_itself(flat(state.params), lambda theta: loss_at(theta, temperature=200.0)))


def test_grasp_as_published_adds_up_the_losses_of_all_minibatches() -> None:
    """Of twelve images in minibatches of eight, each of the last four counts twice as much as one of the others."""
    method = GraSP(oneshot=OneShot(images="minibatches"), local=LocalTraining(batch=8))
    state, product = reported(method, smooth_network(0))
    first, last = minibatches(12, LocalTraining(batch=8, epochs=1), 0, 0, 0)[0]
    assert (len(first), len(last)) == (8, 4)

    def loss(theta: Tensor) -> Tensor:
        return sum((loss_at(theta, 200.0, torch.from_numpy(batch)) for batch in (first, last)), torch.zeros(()))

    assert_near(flat(product), along_itself(flat(state.params), loss))


def along_itself(theta: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """Hg of the prunable weights, the rest 0."""

    def g(at: Tensor) -> Tensor:
        return slope(loss, at) * WEIGHTS

    return (g(theta + g(theta)) - g(theta - g(theta))) / 2


# Which weights stay

MODEL = InitialModel(
    params={
        "a": torch.tensor([[1.0, 2.0, -1.0, 3.0], [-2.0, 1.0, 4.0, 1.0]]),
        "b": torch.tensor([[1.0, 1.0], [2.0, -1.0]]),
        "bias": torch.tensor([9.0, 9.0]),
    },
    layers=(Layer("a", (2, 4)), Layer("b", (2, 2), biases=2)),
)
NINE = Sparsity(0.25)
"""Of twelve weights nine: six and three at the same density, five and four by ERK."""


def answered(method: OneShotPruning, state: ServerState, answer: Tensors) -> ServerState:
    """The state after a round 0 in which a client reported this."""
    total, kind = SparseSum(state.masks), str(method.report.kind)
    total.add(Update(client=0, round=state.round, weight=3, params={}, extra={kind: answer}))
    return method.aggregate(state, total)


def trained(method: OneShotPruning, state: ServerState, params: Tensors) -> ServerState:
    """The state after a round in which a client came to these weights."""
    total = SparseSum(state.masks)
    total.add(Update(client=0, round=state.round, weight=1, params=packed(params, positions_of(state.masks))))
    return method.aggregate(state, total)


@pytest.mark.parametrize(
    ("scope", "a", "b"),
    [
        ("global", [[1, 1, 1, 0], [1, 1, 1, 1]], [[0, 1], [0, 1]]),
        ("layer", [[1, 1, 1, 0], [1, 1, 1, 0]], [[1, 1], [0, 1]]),
        ("erk", [[1, 1, 1, 0], [1, 1, 0, 0]], [[1, 1], [1, 1]]),
    ],
)
def test_snip_keeps_the_largest_products_of_weight_and_gradient(scope: Any, a: list[Any], b: list[Any]) -> None:
    """|θ·g| is [[5, 2, 4, 0], [2, 3, 2, 1]] in a and [[½, 3], [½, 1½]] in b. Of equals the first stay."""
    method = SNIP(sparsity=NINE, oneshot=OneShot(scope=scope))
    gradient = {
        "a": torch.tensor([[5.0, 1.0, -4.0, 0.0], [1.0, -3.0, 0.5, 1.0]]),
        "b": torch.tensor([[0.5, 3.0], [0.25, 1.5]]),
        "bias": torch.tensor([7.0, 7.0]),
    }
    after = answered(method, method.init(MODEL, seed=0), gradient)
    assert after.round == 1
    assert after.masks["a"].int().tolist() == a
    assert after.masks["b"].int().tolist() == b
    assert after.budgets == count_active(after.masks)
    assert after.params["a"].equal(MODEL.params["a"] * torch.tensor(a))
    assert after.params["bias"].tolist() == [9, 9]


@pytest.mark.parametrize(
    ("scope", "a", "b"),
    [
        ("global", [[1, 0, 1, 1], [0, 0, 1, 1]], [[1, 1], [1, 1]]),
        ("layer", [[1, 1, 1, 1], [0, 0, 1, 1]], [[1, 1], [1, 0]]),
        ("erk", [[1, 0, 1, 1], [0, 0, 1, 1]], [[1, 1], [1, 1]]),
    ],
)
def test_grasp_removes_the_highest_scores(scope: Any, a: list[Any], b: list[Any]) -> None:
    """−θ·Hg is [[−5, 2, −4, 0], [2, 3, −2, 1]] in a and [[½, −3], [−½, 1½]] in b. Of equals the first stay."""
    method = GraSP(sparsity=NINE, oneshot=OneShot(scope=scope))
    product = {
        "a": torch.tensor([[5.0, -1.0, -4.0, 0.0], [1.0, -3.0, 0.5, -1.0]]),
        "b": torch.tensor([[-0.5, 3.0], [0.25, 1.5]]),
        "bias": torch.tensor([7.0, 7.0]),
    }
    after = answered(method, method.init(MODEL, seed=0), product)
    assert after.masks["a"].int().tolist() == a
    assert after.masks["b"].int().tolist() == b
    assert after.budgets == count_active(after.masks)


SHAPES = st.lists(st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple), min_size=1, max_size=4)


@given(
    SHAPES,
    st.floats(0.01, 0.99),
    st.sampled_from(["uniform", "er", "erk", "root", "even", "erk-published"]),
    st.sampled_from(["global", "layer", "erk"]),
    st.sampled_from(["1-S", "S"]),
    st.sampled_from([SNIP, GraSP]),
    st.integers(0, 2**32),
)
def test_every_scope_keeps_exactly_what_it_should(
    shapes: list[tuple[int, ...]],
    level: float,
    distribution: Any,
    scope: Any,
    kept: Any,
    kind: type[OneShotPruning],
    seed: int,
) -> None:
    draws = torch.Generator().manual_seed(seed)
    layers = tuple(Layer(f"layer{i}", shape) for i, shape in enumerate(shapes))
    params = {layer.name: torch.randn(layer.shape, generator=draws) for layer in layers}
    method = kind(sparsity=Sparsity(level, distribution), oneshot=OneShot(scope=scope, kept=kept))
    share = level if kept == "1-S" else 1 - level
    try:
        budgets = Sparsity(share, "uniform" if scope == "layer" else distribution).budgets(layers)
    except ModelError:
        reject()
    state = method.init(InitialModel(params, layers), seed=0)
    answer = {name: torch.randn(value.shape, generator=draws).round() for name, value in params.items()}
    after = answered(method, state, answer)
    counts = count_active(after.masks)
    assert after.budgets == counts
    assert sum(counts.values()) == sum(budgets.values())
    assert scope == "global" or counts == budgets
    assert all(after.params[name].equal(value) for name, value in masked(params, after.masks).items())
    if scope == "global":
        worth = torch.cat([method.worth(params[name], answer[name]).reshape(-1) for name in params])
        mask = torch.cat([after.masks[name].reshape(-1) for name in params])
        assert not mask.any() or mask.all() or worth[mask].min() >= worth[~mask].max()


# Orders


@pytest.mark.parametrize("kind", [SNIP, GraSP])
def test_round_zero_asks_one_client_for_a_report_and_later_rounds_are_randommasks(kind: type[OneShotPruning]) -> None:
    method = kind(local=LocalTraining(epochs=3))
    state = method.init(MODEL, seed=0)
    sampled = torch.tensor([5, 7, 2]).numpy()
    assert (state.round, dict(state.masks)) == (0, {})
    assert state.params["a"].equal(MODEL.params["a"])
    plan = method.plan(state, 5)
    assert (plan.train, plan.steps) == (False, (method.asked(state),))
    assert method.cohort(state, sampled) == [5]
    assert replace(method, oneshot=OneShot(client="first")).cohort(state, sampled) == [0]
    assert method.cohort(state.next(), sampled) == [5, 7, 2]
    assert method.plan(state.next(), 5) == RandomMask(local=LocalTraining(epochs=3)).plan(state.next(), 5)


def test_snip_takes_a_minibatch_and_grasp_a_balanced_one_at_temperature_200() -> None:
    assert (SNIP.report.kind, SNIP.report.images, SNIP.report.temperature) == ("gradient", "minibatch", 1)
    assert (GraSP.report.kind, GraSP.report.images, GraSP.report.temperature) == ("hessian-gradient", "balanced", 200)
    [snip], [grasp] = (kind().plan(kind().init(MODEL, seed=0), 5).steps for kind in (SNIP, GraSP))
    assert snip == SNIP.report
    assert grasp == replace(GraSP.report, within=frozenset({"a", "b"}))
    published = GraSP(oneshot=OneShot(images="minibatches"))
    assert published.plan(published.init(MODEL, seed=0), 5).steps == (replace(grasp, images="minibatches"),)


# The published comparison


def test_the_published_server_prunes_a_mask_that_keeps_too_much_once() -> None:
    """Six of eight at first: S = ¾ is the share kept. Then each layer goes to ¼, one of a's four and one of b's."""
    layers = (Layer("a", (2, 2)), Layer("b", (2, 2)))
    params = {"a": torch.tensor([[1.0, -2.0], [3.0, -4.0]]), "b": torch.tensor([[1.0, 1.0], [1.0, 1.0]])}
    method = GraSP(sparsity=Sparsity(0.75, "uniform"), oneshot=OneShot(kept="S", server_prunes=True))
    state = method.init(InitialModel(params, layers), seed=0)
    product = {"a": torch.tensor([[1.0, -1.0], [1.0, -1.0]]), "b": torch.tensor([[-1.0, 1.0], [1.0, -2.0]])}
    state = answered(method, state, product)
    assert state.budgets == {"a": 4, "b": 2}
    assert state.masks["b"].tolist() == [[False, True], [True, False]]
    state = trained(
        method, state, {"a": torch.tensor([[-9.0, 8.0], [7.0, 6.0]]), "b": torch.tensor([[0, 2], [-3.0, 0]])}
    )
    assert state.budgets == count_active(state.masks) == {"a": 1, "b": 1}
    assert state.params["a"].tolist() == [[-9, 0], [0, 0]]
    assert state.params["b"].tolist() == [[0, 0], [-3, 0]]
    again = trained(method, state, {"a": torch.tensor([[0.5, 0], [0, 0]]), "b": torch.tensor([[0, 0], [0.5, 0]])})
    assert all(again.masks[name].equal(mask) for name, mask in state.masks.items())


def test_the_published_server_leaves_a_layer_that_is_below_its_budget() -> None:
    """Nine of twelve are kept at first, all eight of a and one of b. Later a may keep one and b four."""
    layers = (Layer("a", (2, 4)), Layer("b", (2, 2)))
    params = {"a": torch.ones(2, 4), "b": torch.ones(2, 2)}
    method = SNIP(sparsity=Sparsity(0.75, "erk-published"), oneshot=OneShot(kept="S", server_prunes=True))
    state = method.init(InitialModel(params, layers), seed=0)
    assert method.sparsity.budgets(layers) == {"a": 1, "b": 4}
    state = answered(method, state, {"a": torch.ones(2, 4), "b": torch.zeros(2, 2)})
    assert state.budgets == {"a": 8, "b": 1}
    state = trained(method, state, state.params)
    assert state.budgets == count_active(state.masks) == {"a": 1, "b": 1}


def test_the_server_has_nothing_to_prune_where_the_mask_keeps_what_it_should() -> None:
    method = SNIP(sparsity=NINE, oneshot=OneShot(server_prunes=True))
    state = method.init(MODEL, seed=0)
    first = answered(method, state, {name: torch.ones_like(value) for name, value in MODEL.params.items()})
    after = trained(method, first, first.params)
    assert all(after.masks[name].equal(mask) for name, mask in first.masks.items())


def test_a_mask_that_would_keep_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match=r"oneshot.kept is S and sparsity.level is 0: no weight would be kept"):
        feddst.configure(method="grasp", oneshot={"kept": "S"}, sparsity={"level": 0.0})
    with pytest.raises(OptionError, match=r"oneshot.scope has no effect on randommask"):
        refuse_ineffective([config_of({"method": "randommask"})], {"oneshot.scope": "layer"})


# Whole runs


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))


N = 36 * 12 + 12 + 12 + 12 + 12 * 4 + 4


def config(**changes: Any) -> RunConfig:
    values = {"rounds": 4, "eval_every": 2, "checkpoint_every": 3, "data.clients": 6, "data.images_per_class": 6}
    fast = {"cohort.size": 3, "local.epochs": 2, "local.batch": 5, "engine.workers": 1}
    return updated(RunConfig(), {**values, **fast, **{name.replace("__", "."): v for name, v in changes.items()}})


@pytest.fixture
def data() -> Dataset:
    draws = torch.Generator().manual_seed(3)
    centres, labels = torch.randn(4, 1, 6, 6, generator=draws), torch.arange(200) % 4
    images = centres[labels] + 0.5 * torch.randn(200, 1, 6, 6, generator=draws)
    return Dataset.from_arrays(train=(images[:120], labels[:120]), test=(images[120:], labels[120:]))


class StopAfter(Silent):
    def __init__(self, round: int) -> None:
        self.last, self.seen = round, -1

    def row(self, run: Run, row: Row) -> None:
        self.seen = row.round

    def stop(self) -> bool:
        return self.seen >= self.last


def untimed(result: Result) -> list[Row]:
    return [replace(row, seconds=0.0) for row in result.rows]


@BOTH
def test_round_zero_costs_one_clients_dense_report_and_trains_nothing(method: str, data: Dataset) -> None:
    result = run(config(method=method), model=network, data=data, watcher=StopAfter(0))
    [row] = result.rows
    assert (row.round, row.clients, row.entered, row.left) == (0, 1, 0, 0)
    assert row.accuracy is not None
    assert row.upload_bytes == HEADER + 4 * N
    assert row.upload_bits == 32 * N
    assert row.download_bits == 32 * N
    assert row.density == pytest.approx(0.2, abs=0.002)
    start = make_module(network, 0).state_dict()
    for name, value in result.model.state_dict().items():
        assert value.equal(start[name] * result.masks[name] if name in result.masks else start[name])


@BOTH
def test_the_mask_goes_down_once_and_only_active_weights_travel_from_then_on(method: str, data: Dataset) -> None:
    result = run(config(method=method, cohort__size=6), model=network, data=data, watcher=Silent())
    assert [row.round for row in result.rows] == [0, 1, 2, 3, 4]
    assert [row.clients for row in result.rows] == [1, 6, 6, 6, 6]
    active, dense = sum(map(int, count_active(result.masks).values())), N - 36 * 12 - 12 * 4
    sent = [
        after.upload_bytes - before.upload_bytes for before, after in zip(result.rows, result.rows[1:], strict=False)
    ]
    buffers = 104  # two float32 vectors of twelve and a counter
    assert sent == [6 * (HEADER + buffers + 4 * (active + dense))] * 4
    masks = [row.download_mask_bytes for row in result.rows]
    assert masks[0] == 0 < masks[1] == masks[2] == masks[4]
    assert all(row.upload_mask_bytes == 0 for row in result.rows)
    assert result.summary.stopped_by == "rounds"


@BOTH
@pytest.mark.parametrize("stop", [0, 1, 2])
def test_a_run_stopped_after_round_zero_or_later_goes_on_bit_for_bit(
    method: str, stop: int, tmp_path: Path, data: Dataset
) -> None:
    published = {"oneshot__kept": "S", "oneshot__server_prunes": True, "accounting": "published"}
    settings = config(method=method, **published)
    whole = run(settings, model=network, data=data, out=tmp_path / "whole", watcher=Silent())
    part = run(settings, model=network, data=data, out=tmp_path / "part", watcher=StopAfter(stop))
    assert (part.finished, len(part.rows)) == (False, stop + 1)
    rest = run(settings, model=network, data=data, out=tmp_path / "part", resume=True, watcher=Silent())
    assert untimed(whole) == untimed(rest)
    files = [RunDirectory(tmp_path / name) for name in ("whole", "part")]
    assert files[0].checkpoint.read_bytes() == files[1].checkpoint.read_bytes()


def test_a_run_killed_in_round_zero_begins_again(tmp_path: Path, data: Dataset) -> None:
    class Killed(Silent):
        def row(self, run: Run, row: Row) -> None:
            raise ZeroDivisionError

    whole = run(config(method="snip"), model=network, data=data, watcher=Silent())
    settings = config(method="snip", checkpoint_every=100)
    with pytest.raises(ZeroDivisionError):
        run(settings, model=network, data=data, out=tmp_path / "a", watcher=Killed())
    again = run(settings, model=network, data=data, out=tmp_path / "a", resume=True, watcher=Silent())
    assert untimed(whole) == untimed(again)


def test_the_published_mask_moves_in_round_one_and_never_again(data: Dataset) -> None:
    settings = config(method="grasp", oneshot__kept="S", oneshot__server_prunes=True, oneshot__client="first")
    result = run(settings, model=network, data=data, watcher=Silent())
    assert [row.density for row in result.rows] == pytest.approx([0.8, 0.2, 0.2, 0.2, 0.2], abs=0.01)
    assert [row.left > 0 for row in result.rows] == [False, True, False, False, False]
    assert not any(row.entered for row in result.rows)


def test_the_cap_looks_ahead_from_round_zero(data: Dataset) -> None:
    """A dense report may be all that the cap has room for."""
    free = run(config(method="snip", rounds=1), model=network, data=data, watcher=Silent())
    bits = [8 * row.upload_bytes for row in free.rows]
    capped = run(config(method="snip", cap_gib=(bits[1] - 1) / GIB), model=network, data=data, watcher=Silent())
    assert [row.round for row in capped.rows] == [0]
    assert capped.summary.stopped_by == "cap"
    exact = run(config(method="snip", cap_gib=bits[1] / GIB), model=network, data=data, watcher=Silent())
    assert [row.round for row in exact.rows] == [0, 1]
    with pytest.raises(OptionError, match=r"cap_gib must be at least .*, one round of snip, got"):
        run(config(method="snip", cap_gib=(bits[0] - 1) / GIB), model=network, data=data)


def test_round_zero_comes_about_whoever_straggles_and_however_many_updates_a_round_needs(data: Dataset) -> None:
    late = run(config(method="snip", cohort__stragglers=1.0, rounds=1), model=network, data=data, watcher=Silent())
    many = run(config(method="snip", min_clients=3, rounds=1), model=network, data=data, watcher=Silent())
    assert [row.clients for row in late.rows] == [1, 0]
    assert [row.clients for row in many.rows] == [1, 3]
    assert late.rows[0].density == many.rows[0].density == pytest.approx(0.2, abs=0.01)


class HalfUnused(nn.Module):
    """Two linear layers side by side; no gradient reaches the second."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(36, 4), nn.Linear(36, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.used(x.flatten(1)) + 0.0 * self.unused(x.flatten(1))
        return found


@pytest.mark.parametrize(
    ("values", "mask"),
    [
        ("float32", "positions"),
        ("float32", "bitmap"),
        ("bfloat16", "difference"),
        ("q8", "difference"),
        ("q2", "bitmap"),
    ],
)
@BOTH
def test_a_layer_without_any_weights_travels_and_trains(method: str, values: str, mask: str, data: Dataset) -> None:
    settings = config(method=method, rounds=2, wire__values=values, wire__mask=mask, wire__packing="deflate")
    result = run(settings, model=HalfUnused, data=data, watcher=Silent())
    assert result.finished
    assert count_active(result.masks) == {"used.weight": 58, "unused.weight": 0}
    assert not any(row.refused for row in result.rows)
    assert not result.model.get_parameter("unused.weight").any()


def small_cnn() -> nn.Sequential:
    convolution = (nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*convolution, nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))


@BOTH
def test_it_learns_mnist(method: str) -> None:
    settings = feddst.configure(
        method=method,
        rounds=10,
        eval_every=10,
        data={"clients": 10, "classes_per_client": 4, "images_per_class": 20},
        cohort={"size": 5},
        local={"epochs": 3, "lr": 0.05},
        engine={"workers": 1},
    )
    result = run(settings, model=small_cnn, watcher=Silent())
    assert [row.accuracy is not None for row in result.rows] == [True, *[False] * 9, True]
    assert result.rows[-1].density == pytest.approx(0.2, abs=0.001)
    assert result.summary.final > 0.6  # ten classes: chance is 0.1; with this seed it is about 0.8


def test_the_cards_say_what_travels() -> None:
    for name in ("snip", "grasp"):
        card = METHODS[name].card
        assert card.cost == "32(1−S)n"
        assert card.up.startswith("active weights; in round 0 one client's dense")
