"""LotteryFL by hand, resumed, and on digits: clients end with masks that serve them better than the global model."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from feddst.clients.steps import LotteryPruning
from feddst.clients.steps.lottery import kept_masks, own_masks
from feddst.core import (
    ClientState,
    Examples,
    InitialModel,
    Layer,
    ServerState,
    SparseSum,
    Update,
    count_active,
    packed,
    positions_of,
)
from feddst.data import Dataset
from feddst.errors import WireError
from feddst.methods import Lottery, LotteryFL
from feddst.options import updated
from feddst.runtime import Result, RunConfig, run
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.sparsity import Sparsity
from feddst.wire import ClientTask, Message, Reference, decode_update, encode_update, largest_update

MODEL = InitialModel(
    params={"w": torch.tensor([[4.0, -3.0], [2.0, -1.0]]), "b": torch.tensor([0.5])}, layers=(Layer("w", (2, 2), 1),)
)
METHOD = LotteryFL(sparsity=Sparsity(0.5), lottery=Lottery(threshold=0.7, prune=0.3, held_out=0.1))


def answer(state: ServerState, w: Tensor, mask: list[list[int]], b: float, weight: int = 1) -> Update:
    masks = {"w": torch.tensor(mask, dtype=torch.bool)}
    held = packed({"w": w, "b": torch.tensor([b])}, positions_of(masks))
    return Update(0, state.round, weight, held, masks=masks)


def test_clients_are_told_to_look_for_a_ticket() -> None:
    state = METHOD.init(MODEL, seed=0)
    assert not state.masks
    assert not METHOD.broadcast(state, 0).masks
    assert METHOD.plan(state, 0).step(LotteryPruning) == LotteryPruning(0.7, 0.3, 0.1, {"w": 2})


def test_a_weight_is_averaged_over_those_who_hold_it_and_stays_where_nobody_does() -> None:
    state = METHOD.init(MODEL, seed=0)
    total = SparseSum(state.masks)
    total.add(answer(state, torch.tensor([[8.0, 1.0], [0.0, 0.0]]), [[1, 1], [0, 0]], b=1.0, weight=1))
    total.add(answer(state, torch.tensor([[4.0, 0.0], [7.0, 0.0]]), [[1, 0], [1, 0]], b=3.0, weight=3))
    after = METHOD.aggregate(state, total)
    # (8 + 3·4)/4, only the first client's 1, only the second's 7, and −1 as it was; (1 + 3·3)/4.
    assert after.params["w"].tolist() == [[5, 1], [7, -1]]
    assert after.params["b"].tolist() == [2.5]
    assert not after.masks
    assert after.extra["initial/w"].tolist() == [[4, -3], [2, -1]]


def test_a_clients_own_model_is_the_servers_under_its_mask() -> None:
    state = METHOD.init(MODEL, seed=0)
    kept = ClientState(kept_masks({"w": torch.tensor([[True, False], [False, True]])}))
    own = METHOD.personal(state, kept)
    assert own is not None
    assert own["w"].tolist() == [[4, 0], [0, -1]]
    assert own["b"].tolist() == [0.5]


def test_a_mask_below_its_budget_or_of_another_layer_is_refused() -> None:
    state = METHOD.init(MODEL, seed=0)
    message = Message().read_as(Reference(METHOD.broadcast(state, 0)))
    images = Examples(targets=torch.zeros(100, dtype=torch.int64))
    task = ClientTask(0, 0, METHOD.plan(state, 0), message, images)
    assert task.largest_weight == 90  # a tenth is held out

    def sent(update: Update) -> Update:
        payload = encode_update(update, task)
        assert len(payload) <= largest_update(task)
        return decode_update(payload, task)

    fine = sent(answer(state, MODEL.params["w"], [[1, 0], [0, 1]], b=1.0))
    assert fine.masks is not None
    assert fine.masks["w"].tolist() == [[True, False], [False, True]]
    assert fine.params["w"].tolist() == [4, -1]
    with pytest.raises(WireError, match="the mask of w keeps 1 weights, at least 2 must stay"):
        sent(answer(state, MODEL.params["w"], [[1, 0], [0, 0]], b=1.0))
    masks = {"b": torch.ones(1, dtype=torch.bool)}
    with pytest.raises(WireError, match="b comes with a mask, but is dense"):
        sent(Update(0, 1, 1, dict(MODEL.params), masks=masks))


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


SMALL = {
    "method": "lotteryfl",
    "rounds": 40,
    "eval_every": 40,
    "data.clients": 10,
    "cohort.size": 5,
    "local.epochs": 3,
    "local.batch": 16,
    "local.lr": 0.05,
    "engine.workers": 1,
}


class Recorder(Silent):
    """Remembers what clients keep; `last` is a round to stop after."""

    def __init__(self, last: int = 0) -> None:
        self.last, self.round = last, 0
        self.kept: dict[int, ClientState] = {}
        self.shapes: dict[str, torch.Size] = {}

    def row(self, run: Run, row: Row) -> None:
        self.round, self.kept = row.round, dict(run.clients)
        self.shapes = {name: run.state.params[name].shape for name in run.state.budgets}

    def stop(self) -> bool:
        return bool(self.last) and self.round >= self.last


@pytest.fixture(scope="module")
def played(digits: Dataset) -> tuple[Result, Recorder]:
    seen = Recorder()
    return run(updated(RunConfig(), SMALL), model=network, data=digits, watcher=seen), seen


def test_clients_end_with_different_masks(played: tuple[Result, Recorder]) -> None:
    _, seen = played
    masks = [own_masks(kept, seen.shapes) for _, kept in sorted(seen.kept.items())]
    assert len(masks) == 10
    for i, one in enumerate(masks):
        assert all(not torch.equal(one["1.weight"], other["1.weight"]) for other in masks[:i])
    budgets = Sparsity().budgets([Layer(name, tuple(shape)) for name, shape in seen.shapes.items()])
    assert sum(count_active(mask) == budgets for mask in masks) >= 5


def test_masks_serve_clients_better_than_the_global_model(played: tuple[Result, Recorder]) -> None:
    summary = played[0].summary
    assert summary.final_personal is not None
    assert summary.final_personal > 0.85
    assert summary.final_personal > summary.final + 0.2


def test_uploads_shrink_and_broadcasts_do_not(played: tuple[Result, Recorder]) -> None:
    rows = played[0].rows
    n = 784 * 32 + 32 + 32 * 10 + 10
    assert rows[0].upload_bits <= 5 * 33 * n
    up = [after.upload_bytes - before.upload_bytes for before, after in pairwise(rows)]
    assert max(up[-3:]) < 0.5 * up[0]
    assert {after.download_bytes - before.download_bytes for before, after in pairwise(rows)} == {5 * (48 + 4 * n)}
    assert {row.density for row in rows} == {1.0}
    assert rows[0].flops_dense == 3 * 5 * 32 * 6 * (784 * 32 + 320)  # 3 epochs, 5 clients, 32 of 40 images
    assert rows[-1].flops_sparse < rows[-1].flops_dense


FEW = {"rounds": 6, "eval_every": 2, "checkpoint_every": 2, "lottery.threshold": 0.2}


def test_a_resumed_run_is_the_unbroken_one_whoever_draws_the_initial_weights(digits: Dataset, tmp_path: Path) -> None:
    """A resumed run may come with a module of other weights: what clients rewind to is in the checkpoint."""
    config, first = updated(RunConfig(), {**SMALL, **FEW}), network()
    whole, part = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "part")
    seen = Recorder()
    run(config, model=first, data=digits, out=whole.path, watcher=seen)
    run(config, model=first, data=digits, out=part.path, watcher=Recorder(last=3))
    run(config, model=network(), data=digits, out=part.path, resume=True, watcher=Silent())
    assert any(sum(count_active(own_masks(kept, seen.shapes)).values()) < 25408 for kept in seen.kept.values())
    assert part.checkpoint.read_bytes() == whole.checkpoint.read_bytes()
