"""NestedMask by hand, its bytes by tier, on every engine and resumed."""

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import feddst
from feddst.core import InitialModel, Layer, ServerState, SparseSum, Update, count_active, packed, positions_of
from feddst.data import Dataset, federate
from feddst.engines import make_engine
from feddst.errors import OptionError
from feddst.methods import NestedMask, Tiers
from feddst.models import make_module
from feddst.options import updated
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent, play
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.sparsity import Sparsity
from feddst.wire.header import SIZE

MODEL = InitialModel(
    params={"w": torch.tensor([[4.0, -3.0], [2.0, -1.0]]), "b": torch.tensor([0.5])}, layers=(Layer("w", (2, 2), 1),)
)


def method_of(*shares: float, level: float = 0.25) -> NestedMask:
    return NestedMask(sparsity=Sparsity(level, "uniform"), tiers=Tiers(shares))


def tiers_of(state: ServerState, tiers: int, name: str = "w") -> list[torch.Tensor]:
    return [state.extra[f"tier {tier}/{name}"] for tier in range(tiers)]


# By hand.


def test_each_tier_holds_its_share_of_the_largest_weights() -> None:
    """A quarter of the four weights is left out: −1. Of the other three 0.6 is 1.8, so two; 0.1 is 0.3, so one."""
    state = method_of(1.0, 0.6, 0.1).init(MODEL, seed=0)
    assert state.params["w"].tolist() == [[4, -3], [2, 0]]
    assert (state.round, dict(state.budgets), count_active(state.masks)) == (1, {"w": 3}, {"w": 3})
    assert [mask.tolist() for mask in tiers_of(state, 3)] == [
        [[True, True], [True, False]],
        [[True, True], [False, False]],
        [[True, False], [False, False]],
    ]


def test_clients_are_in_tiers_in_turn_and_each_is_sent_its_tiers_masks() -> None:
    method = method_of(1.0, 0.6)
    state = method.init(MODEL, seed=0)
    for client in range(5):
        sent = method.broadcast(state, client)
        assert sent.masks["w"] is state.extra[f"tier {client % 2}/w"]  # the same tensors are the same message
        assert (sent.params, sent.buffers, sent.round) == (state.params, state.buffers, 1)


def test_what_nobody_held_stays_and_tiers_follow_the_weights() -> None:
    """Of the weights 4, −3 and 2 tier 0 holds two and tier 1 one. n_c are 1 and 3.

    The first becomes (1·1 + 3·3)/4 = 2.5, the second is tier 0's, −5, the third is held by nobody: 2; the bias is
    (1·0 + 3·2)/4. Then −5 is the largest: it is what tier 1 is sent next.
    """
    method = method_of(0.6, 0.2)
    state = method.init(MODEL, seed=0)
    total = SparseSum(method.broadcast(state, 0).masks)
    for client, weight, w, b in ((0, 1, [[1.0, -5.0], [9.0, 9.0]], 0.0), (1, 3, [[3.0, 9.0], [9.0, 9.0]], 2.0)):
        masks = method.broadcast(state, client).masks
        params = packed({"w": torch.tensor(w), "b": torch.tensor([b])}, positions_of(masks))
        total.add(Update(client, 1, weight, params, masks=masks))
    after = method.aggregate(state, total)
    assert after.params["w"].tolist() == [[2.5, -5.0], [2.0, 0.0]]
    assert after.params["b"].tolist() == [1.5]
    assert after.round == 2
    assert torch.equal(after.masks["w"], state.masks["w"])
    assert [mask.tolist() for mask in tiers_of(after, 2)] == [
        [[True, True], [False, False]],
        [[False, True], [False, False]],
    ]


def test_shares_are_checked() -> None:
    for shares, reason in (
        ((), r"tiers\.shares must have at least one share, got none"),
        ((1.0, 0.0), r"tiers\.shares must be in \(0, 1\], got 0\.0"),
        ((1.1,), r"tiers\.shares must be in \(0, 1\], got 1\.1"),
    ):
        with pytest.raises(OptionError, match=reason):
            updated(RunConfig(), {"method": "nestedmask", "tiers.shares": shares}).check()
    with pytest.raises(OptionError, match=r"tiers\.shares has no effect on randommask"):
        feddst.configure(method="randommask", tiers={"shares": (0.5,)})


# For any weights.


@given(
    st.integers(0, 2**32),
    st.lists(st.floats(0.01, 1), min_size=1, max_size=4),
    st.floats(0, 0.95),
    st.sampled_from([1.0, 4.0]),
)
def test_tiers_are_within_each_other_with_exact_budgets(
    seed: int, shares: Sequence[float], level: float, steps: float
) -> None:
    """Also among weights that are as large as each other, which there are many of where they are rounded."""
    draws = torch.Generator().manual_seed(seed)
    shapes = {"a": (4, 3), "b": (3, 2, 2, 2)}
    params = {name: (steps * torch.randn(shape, generator=draws)).round() for name, shape in shapes.items()}
    layers = tuple(Layer(name, shape) for name, shape in shapes.items())
    state = method_of(*shares, level=level).init(InitialModel(params=params, layers=layers), seed=0)
    for name, budget in state.budgets.items():
        masks = tiers_of(state, len(shares), name)
        sizes = [int(mask.sum()) for mask in masks]
        assert sizes == [min(budget, max(1, round(share * budget))) for share in shares]
        everything = state.masks[name]
        for mask in masks:
            assert not (mask & ~everything).any()
            left = state.params[name].abs()[everything & ~mask]
            assert not left.numel() or float(left.max()) <= float(state.params[name].abs()[mask].min())
        ordered = sorted(masks, key=lambda mask: int(mask.sum()))
        assert not any((small & ~large).any() for small, large in pairwise(ordered))


# Whole runs: 64·8 and 8·4 weights of which half are kept, 256 and 16, and 12 biases.

KEPT = ((256, 16), (128, 8), (64, 4))
"""The weights of each tier in either layer, with shares of 1, 0.5 and 0.25."""
SMALL = {
    "method": "nestedmask",
    "rounds": 4,
    "eval_every": 2,
    "checkpoint_every": 1,
    "data.partition": "iid",
    "data.clients": 6,
    "data.images_per_class": 6,
    "cohort.size": 6,
    "local.epochs": 2,
    "local.batch": 8,
    "local.lr": 0.05,
    "sparsity.level": 0.5,
    "sparsity.distribution": "uniform",
    "engine.kind": "reference",
    "engine.workers": 1,
}


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4))


@pytest.fixture
def data() -> Dataset:
    draws = torch.Generator().manual_seed(3)
    centres, labels = torch.randn(4, 1, 8, 8, generator=draws), torch.arange(240) % 4
    images = centres[labels] + 0.5 * torch.randn(240, 1, 8, 8, generator=draws)
    return Dataset.from_arrays(train=(images[:160], labels[:160]), test=(images[160:], labels[160:]))


@pytest.fixture
def begun(data: Dataset) -> Callable[..., Run]:
    """A run before its first round."""

    def make(**changes: Any) -> Run:
        config = updated(RunConfig(), SMALL | {name.replace("__", "."): value for name, value in changes.items()})
        return Run(config, federate(config.data, config.seed, data), make_module(network, config.seed))

    return make


@pytest.fixture
def played(begun: Callable[..., Run], data: Dataset) -> Callable[..., Run]:
    """One that has been played to its end."""

    def make(**changes: Any) -> Run:
        run = begun(**changes)
        with closing(make_engine(run.config.engine, network(), data)) as engine:
            play([run], engine, Silent())
        return run

    return make


def test_each_client_is_sent_as_many_bytes_as_its_tier_has(begun: Callable[..., Run]) -> None:
    """A header, four bytes for each of the tier's weights and the 12 biases, and the mask, filled up to eight bytes."""
    tasks = begun().open_round()
    assert {task.client for task in tasks} == set(range(6))
    for task in tasks:
        first, second = KEPT[task.client % 3]
        assert dict(task.sent.active) == {"1.weight": first, "3.weight": second}
        size, mask = task.message.sizes
        assert len(task.message.payload) == size == SIZE + 4 * (first + second + 12) + 8 * math.ceil(mask / 8)
        assert mask > 0


def test_what_a_round_costs_is_what_its_tiers_send(played: Callable[..., Run]) -> None:
    """There are two clients of each tier, which hold 272, 136 or 68 of the 544 weights; of n = 556 so large a share."""
    [row] = played(rounds=1).rows
    values = 2 * sum(SIZE + 4 * (first + second + 12) for first, second in KEPT)
    assert (row.upload_bytes, row.upload_mask_bytes) == (values, 0)
    assert values < row.download_bytes - row.download_mask_bytes < values + 6 * 8
    assert row.upload_bits == 2 * 32 * 556 * (272 + 136 + 68) // 544
    assert row.density == 0.5  # the server's network


@pytest.mark.parametrize("kind", ["native", "stacked"])
def test_every_engine_does_as_the_reference_does(
    kind: str, played: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To rounding; what the stacked engine counts and adds up is audited in every round."""
    monkeypatch.setattr(sys.modules["feddst.runtime.run"], "AUDIT_EVERY", 1)
    expected, found = played(), played(engine__kind=kind)
    assert found.rows[-1].accuracy == expected.rows[-1].accuracy
    assert expected.rows[-1].accuracy is not None
    assert expected.rows[-1].accuracy > 0.5  # four classes: chance is 0.25
    for name, value in expected.state.params.items():
        torch.testing.assert_close(found.state.params[name], value, rtol=0, atol=1e-5)
    counted = ("clients", "upload_bytes", "download_bytes", "download_mask_bytes", "upload_bits", "flops_sparse")
    for one, right in zip(found.rows, expected.rows, strict=True):
        assert [getattr(one, name) for name in counted] == [getattr(right, name) for name in counted]


def test_a_trimmed_mean_of_tiers_is_taken_over_those_who_hold_a_weight(played: Callable[..., Run]) -> None:
    """Of six clients all hold the largest weights, and one is left out at either end; two hold the smallest."""
    usual, trimmed = played(), played(aggregator__kind="trimmed-mean", aggregator__trim=0.2)
    untrimmed = played(aggregator__kind="trimmed-mean", aggregator__trim=0.0)
    for name, value in usual.state.params.items():
        torch.testing.assert_close(untrimmed.state.params[name], value, rtol=0, atol=1e-5)
        assert not torch.allclose(trimmed.state.params[name], value, rtol=0, atol=1e-5)
    assert trimmed.rows[-1].accuracy is not None
    assert trimmed.rows[-1].accuracy > 0.5


@pytest.mark.parametrize("kind", ["native", "stacked"])
def test_a_resumed_run_ends_with_the_same_bits(kind: str, data: Dataset, tmp_path: Path) -> None:
    config = updated(RunConfig(), {**SMALL, "engine.kind": kind, "cohort.size": 4, "wire.values": "q4"})

    class Stop(Silent):
        def stop(self) -> bool:
            return True

    whole, part = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "part")
    feddst.run(config, model=network, data=data, out=whole.path, watcher=Silent())
    for attempt in range(4):
        feddst.run(config, model=network, data=data, out=part.path, resume=attempt > 0, watcher=Stop())
    assert part.checkpoint.read_bytes() == whole.checkpoint.read_bytes()
    assert part.details_file.read_bytes() == whole.details_file.read_bytes()
