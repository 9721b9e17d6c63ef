"""PruneFL: reconfigurations by hand and by brute force, and runs on MNIST that get sparse or (published) do not."""

import shutil
from fractions import Fraction
from importlib import import_module
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from feddst.clients.steps import InitialPruning, Proximal, Report
from feddst.core import InitialModel, Layer, ServerState, SparseSum, Update, packed, positions_of
from feddst.core.model import LayerTimes
from feddst.data import Dataset, federate
from feddst.data.mnist import load_mnist
from feddst.errors import ModelError
from feddst.methods import PruneFL, Reconfiguration
from feddst.models import make_module
from feddst.options import updated
from feddst.runtime import Result, RunConfig, run
from feddst.runtime.loop import Silent
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.sparsity.reconfiguration import reconfigure, reconfigure_published

# Layer a has three active weights and b two; the smallest of each may leave.
THETA = {"a": torch.tensor([[4.0, -3.0], [0.5, 0.0]]), "b": torch.tensor([[-2.0, 1.0]]), "bias": torch.tensor([1.0])}
MASKS = {"a": torch.tensor([[True, True], [True, False]]), "b": torch.tensor([[True, True]])}
G = {"a": torch.tensor([[1.0, -1.0], [0.0, 3.0]]), "b": torch.tensor([[2.0, -2.0]]), "bias": torch.tensor([1.0])}
SQUARES = {name: value**2 for name, value in G.items()}
TIMES = {"a": 1.0, "b": 2.0}


def shown(masks: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: mask.flatten().int().tolist() for name, mask in masks.items()}


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        # Γ = (1 + 1 + 4, and 1 for the bias)/(2 + 1 + 1 + 2) = 7/6. The inactive weight's 9 is more, then Γ = 16/7,
        # which b's 4/2 does not exceed.
        (2.0, {"a": [1, 1, 0, 1], "b": [1, 0]}),
        # Γ = 7/14, then 16/15, which b's 2 exceeds, then 20/17, which 0 does not.
        (10.0, {"a": [1, 1, 0, 1], "b": [1, 1]}),
    ],
)
def test_a_reconfiguration_by_hand(constant: float, expected: dict[str, list[int]]) -> None:
    assert shown(reconfigure(THETA, SQUARES, MASKS, LayerTimes(TIMES, constant), share=0.6)) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        # By falling g²: 9 (a), 4 and 4 (b), 1, 1, 0 (a). Places 0 to 2 are at most 0.4·6; then Γ = 17/7, above 1.
        (0.6, {"a": [0, 0, 0, 1], "b": [1, 1]}),
        # Only place 0 is within 0.1·6; then Γ = 9/3, above b's 4/2, though that is the second largest g².
        (0.9, {"a": [0, 0, 0, 1], "b": [0, 0]}),
        # 5/6 of the weights and one more are all of them.
        (1 / 6, {"a": [1, 1, 1, 1], "b": [1, 1]}),
    ],
)
def test_a_published_reconfiguration_by_hand(share: float, expected: dict[str, list[int]]) -> None:
    assert shown(reconfigure_published(SQUARES, MASKS, LayerTimes(TIMES, 2.0), share)) == expected


@pytest.mark.parametrize(
    ("importance", "reported"),
    [
        ("squares", [{"squared-gradient": SQUARES}]),
        ("mean", [{"gradient": G}]),
        # Of two clients whose gradients are G and −G the mean would be 0; that of their squares is what it was.
        ("squares", [{"squared-gradient": SQUARES}, {"squared-gradient": SQUARES}]),
    ],
)
def test_the_server_sets_to_zero_what_leaves_and_what_enters(importance: Any, reported: list[Any]) -> None:
    method = PruneFL(prunefl=Reconfiguration(prunable=0.6, layer_times="equal", importance=importance))
    extra = {"time": torch.tensor(2.0), "time/a": torch.tensor(1.0), "time/b": torch.tensor(2.0)}
    state = ServerState(50, 0, THETA, masks=MASKS, budgets={"a": 3, "b": 2}, extra=extra)
    total = SparseSum(MASKS)
    for client, told in enumerate(reported):
        total.add(Update(client, 50, 1, packed(THETA, positions_of(MASKS)), extra=told))
    after = method.aggregate(state, total)
    assert after.round == 51
    assert after.params["a"].tolist() == [[4, -3], [0, 0]]
    assert after.params["b"].tolist() == [[-2, 0]]
    assert after.masks["a"].tolist() == [[True, True], [False, True]]
    assert after.budgets == {"a": 3, "b": 1}
    assert after.extra == extra
    between = method.aggregate(ServerState(49, 0, THETA, masks=MASKS, extra=extra), total)
    assert between.masks == MASKS


def test_when_the_mask_is_chosen_anew_and_how_much_may_leave() -> None:
    ours, published = Reconfiguration(), Reconfiguration(variant="published")
    assert [r for r in range(201) if ours.due(r)] == [0, 50, 100, 150, 200]
    assert [r for r in range(201) if published.due(r)] == [0, 2, 52, 102, 152]
    assert [ours.share(r) for r in (0, 10_000, 20_000)] == [0.3, 0.15, 0.075]
    assert [published.share(r) for r in (0, 2, 52)] == [0.3, 0.15, 0.3 * 0.5**51]


def test_weights_without_any_gradient_are_worth_nothing() -> None:
    """No 0/0: those that may leave do, none enters."""
    still = {name: torch.zeros_like(g) for name, g in SQUARES.items()}
    assert shown(reconfigure(THETA, still, MASKS, LayerTimes(TIMES), 0.6)) == {"a": [1, 1, 0, 0], "b": [1, 0]}


Case = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor], LayerTimes, float]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Two layers of different weights, their squared gradients and times exact in float64, and a bias."""
    shapes = {"b": 3, "a": 4}

    def whole(low: int, high: int, size: int) -> Tensor:
        return torch.tensor(draw(st.lists(st.integers(low, high), min_size=size, max_size=size)))

    magnitudes = torch.split(torch.tensor(draw(st.permutations(range(1, 8)))), list(shapes.values()))
    theta = {name: value.float() for name, value in zip(shapes, magnitudes, strict=True)}
    masks = {name: whole(0, 1, size).bool() for name, size in shapes.items()}
    g = {name: whole(-3, 3, size).float() for name, size in (*shapes.items(), ("bias", 1))}
    times = LayerTimes({name: draw(st.sampled_from((1.0, 2.0, 4.0))) for name in shapes}, draw(st.integers(0, 20)))
    squares = {name: value**2 for name, value in g.items()}
    return {name: theta[name] * masks[name] for name in shapes}, squares, masks, times, draw(st.floats(0, 0.99))


Place = tuple[str, int]


def never_pruned(theta: dict[str, Tensor], masks: dict[str, Tensor], share: float) -> set[Place]:
    stay: set[Place] = set()
    for name, mask in masks.items():
        active = sorted(mask.nonzero().flatten().tolist(), key=lambda i: abs(float(theta[name][i])))
        stay |= {(name, i) for i in active[int(share * len(active)) :]}
    return stay


def rate(kept: set[Place], squares: dict[str, Tensor], times: LayerTimes) -> Fraction:
    gain = Fraction(float(squares["bias"][0])) + sum(Fraction(float(squares[name][i])) for name, i in kept)
    return gain / (Fraction(times.constant) + sum(Fraction(times.per_weight[name]) for name, _ in kept))


def places(masks: dict[str, Tensor]) -> set[Place]:
    return {(name, i) for name, mask in masks.items() for i in mask.nonzero().flatten().tolist()}


@given(cases())
def test_the_mask_is_what_the_greedy_walk_keeps(case: Case) -> None:
    theta, squares, masks, times, share = case
    kept = never_pruned(theta, masks, share)
    if not kept:
        return
    others = {(name, i) for name, mask in masks.items() for i in range(len(mask))} - kept

    def worth(place: Place) -> Fraction:
        return Fraction(float(squares[place[0]][place[1]])) / Fraction(times.per_weight[place[0]])

    walk = sorted(others, key=worth, reverse=True)
    while walk and worth(walk[0]) > rate(kept, squares, times):
        kept.add(walk.pop(0))
    assert places(reconfigure(*case)) == kept


@given(cases())
def test_no_other_mask_that_keeps_the_largest_weights_is_faster(case: Case) -> None:
    theta, squares, masks, times, share = case
    stay, found = never_pruned(theta, masks, share), places(reconfigure(*case))
    if not stay:
        return
    assert stay <= found
    others = {(name, i) for name, mask in masks.items() for i in range(len(mask))} - stay
    subsets = chain.from_iterable(combinations(others, k) for k in range(len(others) + 1))
    assert rate(found, squares, times) == max(rate(stay | set(subset), squares, times) for subset in subsets)


@given(cases())
def test_the_order_of_weights_and_layers_does_not_matter(case: Case) -> None:
    """Equals in g²/t stay or go together."""
    theta, squares, masks, times, share = case
    back = [{name: value.flip(0) for name, value in reversed(tensors.items())} for tensors in (theta, squares, masks)]
    one, two = reconfigure(*case), reconfigure(back[0], back[1], back[2], times, share)
    assert {name: mask.flip(0).tolist() for name, mask in two.items()} == {n: mask.tolist() for n, mask in one.items()}


@given(cases())
def test_the_published_mask_is_the_largest_gradients_down_to_a_floor(case: Case) -> None:
    _, squares, masks, times, share = case
    found = reconfigure_published(squares, masks, times, share)
    kept = [float(squares[name][i]) for name, mask in found.items() for i in mask.nonzero().flatten()]
    left = [float(squares[name][i]) for name, mask in found.items() for i in (~mask).nonzero().flatten()]
    assert len(kept) >= min(7, (1 - share) * 7)
    assert not left or min(kept) >= max(left)
    assert all(mask.all() for mask in reconfigure_published(squares, masks, times, 1 / 7).values())


def test_times_are_asked_for_once_and_kept_in_the_state() -> None:
    layers = (Layer("a", (2, 2)), Layer("b", (1, 2)))
    model = InitialModel(THETA, layers, layer_times=lambda basis: LayerTimes({"a": 0.1, "b": 0.2}, 0.7))
    state = PruneFL().init(model, seed=0)
    assert {name: float(t) for name, t in state.extra.items()} == {"time": 0.7, "time/a": 0.1, "time/b": 0.2}
    assert (state.round, state.budgets) == (0, {"a": 4, "b": 2})
    equal = PruneFL(prunefl=Reconfiguration(layer_times="equal")).init(InitialModel(THETA, layers), seed=0)
    assert {name: float(t) for name, t in equal.extra.items()} == {"time": 0, "time/a": 1 / 6, "time/b": 1 / 6}
    with pytest.raises(ModelError, match=r"prunefl\.layer_times is measured, but nothing here can run the model"):
        PruneFL().init(InitialModel(THETA, layers), seed=0)
    with pytest.raises(ModelError, match="nothing to prune"):
        PruneFL().init(InitialModel(THETA, ()), seed=0)


def test_nothing_is_measured_for_other_methods(monkeypatch: pytest.MonkeyPatch, blobs: Dataset) -> None:
    def refuse(*given: Any) -> LayerTimes:
        raise AssertionError

    monkeypatch.setattr(import_module("feddst.runtime.run"), "layer_times", refuse)
    config = configured(method="feddst")
    Run(config, federate(config.data, 0, blobs), make_module(tiny, 0))
    with pytest.raises(AssertionError):
        Run(configured(prunefl__layer_times="measured"), federate(config.data, 0, blobs), make_module(tiny, 0))


def configured(**changes: Any) -> RunConfig:
    small = {"data.clients": 8, "data.images_per_class": 6, "cohort.size": 3, "local.epochs": 1, "local.batch": 8}
    plain: dict[str, Any] = {"method": "prunefl", "eval_every": 100, "engine.workers": 1}
    plain |= {"prunefl.layer_times": "flops", "prunefl.initial_rounds": 0}
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return updated(RunConfig(), {**small, **plain, **given})


def tiny() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 4))


@pytest.fixture
def blobs() -> Dataset:
    draws = torch.Generator().manual_seed(3)
    images, labels = torch.randn(200, 1, 6, 6, generator=draws), torch.arange(200) % 4
    return Dataset.from_arrays(train=(images[:100], labels[:100]), test=(images[100:], labels[100:]))


class Stop(Silent):
    """Stops a run after every round."""

    def stop(self) -> bool:
        return True


def test_gradients_travel_only_for_a_reconfiguration_and_are_paid_for(blobs: Dataset) -> None:
    method = PruneFL(prunefl=Reconfiguration(every=3, initial_rounds=0))
    orders = [method.plan(ServerState(r, 0, {}), 0) for r in range(8)]
    assert [r for r, plan in enumerate(orders) if plan.steps] == [0, 3, 6]
    assert orders[3].steps == (Report("squared-gradient"),)
    for other in (Reconfiguration(every=3, importance="mean"), Reconfiguration(every=1, variant="published")):
        assert PruneFL(prunefl=other).plan(ServerState(3, 0, {}), 0).steps == (Report("gradient"),)
    assert all(plan.train for plan in orders)
    rows = run(configured(rounds=5, prunefl__every=3), model=tiny, data=blobs, watcher=Silent()).rows
    n = 36 * 12 + 12 + 12 * 4 + 4
    assert [row.clients for row in rows] == [1, 3, 3, 3, 3, 3]
    assert rows[0].upload_bits == 2 * 32 * n
    bits, sent = ([getattr(row, name) for row in rows] for name in ("upload_bits", "upload_bytes"))
    assert (bits[3] - bits[2]) - (bits[2] - bits[1]) == 3 * 32 * n
    assert (sent[3] - sent[2]) - (sent[2] - sent[1]) == 3 * 4 * n
    assert sent[2] - sent[1] == sent[1] - sent[0] > sent[5] - sent[4]
    assert [row.left > 0 for row in rows] == [True, False, False, True, False, False]


def test_a_resumed_run_is_bit_for_bit_the_unbroken_one(tmp_path: Path, blobs: Dataset) -> None:
    config = configured(rounds=5, prunefl__every=2)
    whole, part = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "part")
    run(config, model=tiny, data=blobs, out=whole.path, watcher=Silent())
    for attempt in range(6):
        run(config, model=tiny, data=blobs, out=part.path, resume=attempt > 0, watcher=Stop())
    assert part.finished() is not None
    assert part.checkpoint.read_bytes() == whole.checkpoint.read_bytes()


def test_measured_times_survive_in_the_checkpoint(tmp_path: Path, blobs: Dataset) -> None:
    """Every beginning measures anew, but a resumed run uses what it had."""
    config = configured(rounds=3, prunefl__every=2, prunefl__layer_times="measured")
    one, two = RunDirectory(tmp_path / "one"), RunDirectory(tmp_path / "two")
    run(config, model=tiny, data=blobs, out=one.path, watcher=Stop())
    shutil.copytree(one.path, two.path)
    for files in (one, two):
        run(config, model=tiny, data=blobs, out=files.path, resume=True, watcher=Silent())
    assert one.checkpoint.read_bytes() == two.checkpoint.read_bytes()


@pytest.fixture(scope="module")
def mnist() -> Dataset:
    """The first of MNIST's images."""
    whole = load_mnist()
    train, test = slice(0, 2000), slice(0, 500)
    return Dataset.from_arrays(
        (whole.train_images[train], whole.train_labels[train]),
        (whole.test_images[test], whole.test_labels[test]),
        mean=whole.mean,
        std=whole.std,
    )


def played(data: Dataset, **changes: Any) -> Result:
    return run(configured(data__partition="iid", **changes), data=data, watcher=Silent())


def test_the_authors_schedule_gets_sparse_on_mnist_and_learns(mnist: Dataset) -> None:
    result = played(mnist, rounds=6, prunefl__every=2, data__images_per_class=20, local__epochs=2, local__batch=4)
    densities = [row.density for row in result.rows]
    assert 0.7 <= densities[0] < 0.9
    assert densities == sorted(densities, reverse=True)
    assert 0.05 < densities[-1] < 0.5
    assert any(row.entered for row in result.rows)
    assert result.summary.best > 0.5  # ten classes: chance is 0.1


def test_the_published_variant_keeps_every_weight_of_mnist_from_its_second_reconfiguration_on(mnist: Dataset) -> None:
    """ΔR is 17 here and 50 there: a share 0.3·0.5^18 of 261,000 weights is already less than one."""
    light = {"cohort__size": 1, "data__images_per_class": 2}
    result = played(mnist, rounds=20, prunefl__every=17, prunefl__variant="published", **light)
    densities = {row.round: row.density for row in result.rows}
    assert densities[0] == pytest.approx(0.7, abs=0.01)
    assert [densities[r] for r in (2, 18)] == pytest.approx([0.85, 0.85], abs=0.01)
    assert [densities[r] for r in (19, 20)] == [1, 1]


def test_no_proximal_term_holds_back_the_client_that_prunes_first() -> None:
    method = PruneFL(proximal=Proximal(mu=1.0))
    first, later = (ServerState(round, 0, {}, extra={"time": torch.tensor(1.0)}) for round in (0, 1))
    assert [type(step) for step in method.plan(first, 0).steps] == [InitialPruning]
    assert [type(step) for step in method.plan(later, 0).steps] == [Proximal]
