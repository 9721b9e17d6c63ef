"""What later methods need of the protocol: something asked before round 1, and clients that keep things.

The method here asks one client for its gradient in round 0, keeps the half of each layer where |θ·g| is largest,
and from then on leaves the last layer with the clients.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from feddst.clients.steps import Report
from feddst.core import Aggregator, Broadcast, ClientPlan, InitialModel, ServerState, masked
from feddst.data import Dataset
from feddst.methods import METHODS, FedAvgM
from feddst.models import make_module
from feddst.options import updated
from feddst.runtime import RunConfig, run
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.sparsity import Sparsity, prune_to_budgets

HEAD = frozenset({"3.weight", "3.bias"})


@dataclass(frozen=True)
class Toy(FedAvgM):
    name: ClassVar[str] = "toy"
    summary: ClassVar[str] = "one-shot pruning by one client's gradient, with local heads"
    keeps_state: ClassVar[bool] = True

    sparsity: Sparsity = Sparsity(0.5, "uniform")

    def init(self, model: InitialModel, seed: int) -> ServerState:
        state = super().init(model, seed)
        return replace(state, round=0, budgets=self.sparsity.budgets(model.layers))

    def cohort(self, state: ServerState, sampled: np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
        return super().cohort(state, sampled[:1] if state.round == 0 else sampled)

    def broadcast(self, state: ServerState, client: int) -> Broadcast:
        sent, kept = super().broadcast(state, client), HEAD if state.round else frozenset()
        params = {name: value for name, value in sent.params.items() if name not in kept}
        return replace(sent, params=params, masks={name: m for name, m in sent.masks.items() if name in params})

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        if state.round == 0:
            return ClientPlan(self.local, (Report("gradient"),), train=False)
        return ClientPlan(self.local, keep=HEAD)

    def aggregate(self, state: ServerState, total: Aggregator) -> ServerState:
        if state.round > 0:
            return state.next(params={**state.params, **total.mean()})
        scores = {name: state.params[name] * g for name, g in total.mean("gradient").items()}
        masks = prune_to_budgets(scores, state.budgets)
        return state.next(params=masked(state.params, masks), masks=masks)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 4))


class Stop(Silent):
    def stop(self) -> bool:
        return True


class Recorder(Silent):
    def __init__(self) -> None:
        self.kept: dict[int, dict[str, torch.Tensor]] = {}
        self.rows: list[Row] = []

    def row(self, run: Run, row: Row) -> None:
        self.rows.append(row)
        self.kept = {client: dict(state.tensors) for client, state in run.clients.items()}


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setitem(METHODS, "toy", Toy)
    values = {"method": "toy", "rounds": 4, "eval_every": 4, "data.clients": 6, "data.images_per_class": 5}
    fast = {"cohort.size": 3, "local.epochs": 1, "engine.workers": 1, "sparsity.level": 0.5}
    return updated(RunConfig(), {**values, **fast, "sparsity.distribution": "uniform"})


@pytest.fixture
def data() -> Dataset:
    draws = torch.Generator().manual_seed(0)
    images, labels = torch.randn(160, 1, 6, 6, generator=draws), torch.arange(160) % 4
    return Dataset.from_arrays(train=(images[:80], labels[:80]), test=(images[80:], labels[80:]))


def test_round_zero_asks_one_client_and_sets_the_mask(config: RunConfig, data: Dataset) -> None:
    seen = Recorder()
    result = run(config, model=network, data=data, watcher=seen)
    assert [row.round for row in seen.rows] == [0, 1, 2, 3, 4]
    assert [row.clients for row in seen.rows] == [1, 3, 3, 3, 3]
    assert [row.density for row in seen.rows] == [0.5] * 5
    n = 36 * 12 + 12 + 12 * 4 + 4
    assert seen.rows[0].upload_bits == 32 * n
    # The mask that round 0 made goes down with round 1, and never again; the heads stay where they are.
    shared = 36 * 12 + 12
    down = [32 * n, 32 * n + 3 * 17 * shared, 32 * n + 3 * 33 * shared]
    assert [row.download_bits for row in seen.rows[:3]] == down
    assert {name: int(mask.sum()) for name, mask in result.masks.items()} == {"1.weight": 216, "3.weight": 24}


def test_clients_keep_their_heads_and_the_server_never_sees_them(config: RunConfig, data: Dataset) -> None:
    seen = Recorder()
    result = run(config, model=network, data=data, watcher=seen)
    heads = [kept["3.weight"] for kept in seen.kept.values()]
    assert len(heads) >= 3
    assert all(set(kept) == HEAD for kept in seen.kept.values())
    assert not any(torch.equal(heads[0], other) for other in heads[1:])
    state, start = result.model.state_dict(), make_module(network, config.seed).state_dict()
    assert torch.equal(state["3.weight"], start["3.weight"] * result.masks["3.weight"])
    assert not torch.equal(state["1.weight"], start["1.weight"] * result.masks["1.weight"])


def test_what_clients_keep_survives_a_resumed_run(config: RunConfig, data: Dataset, tmp_path: Path) -> None:
    whole = RunDirectory(tmp_path / "whole")
    run(config, model=network, data=data, out=whole.path)
    part = RunDirectory(tmp_path / "part")
    for attempt in range(6):
        watcher = Stop() if attempt < 5 else Silent()
        run(config, model=network, data=data, out=part.path, resume=attempt > 0, watcher=watcher)
    assert part.checkpoint.read_bytes() == whole.checkpoint.read_bytes()
