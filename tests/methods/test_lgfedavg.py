"""LG-FedAvg by hand, resumed, and on digits: what is local never travels."""

from pathlib import Path

import pytest
import torch
from torch import nn

from feddst.core import ClientState, InitialModel, Layer, SparseSum, Update
from feddst.data import Dataset
from feddst.errors import ModelError
from feddst.methods import LGFedAvg, SharedLayers
from feddst.models import initial_model
from feddst.options import updated
from feddst.runtime import RunConfig, run
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory

MODEL = InitialModel(
    params={"a": torch.tensor([[1.0], [2.0]]), "norm": torch.tensor([3.0]), "z": torch.tensor([[4.0, 5.0]])},
    layers=(Layer("a", (2, 1)), Layer("z", (1, 2))),
    buffers={"seen": torch.tensor([0.0])},
)


def test_only_what_is_shared_travels_and_is_averaged() -> None:
    method = LGFedAvg()
    state = method.init(MODEL, seed=0)
    assert method.plan(state, 0).keep == {"a", "norm"}
    sent = method.broadcast(state, 0)
    assert set(sent.params) == {"z"}
    assert set(sent.buffers) == {"seen"}
    total = SparseSum({})
    for client, (weight, z, seen) in enumerate([(1, [0.0, 8.0], 4.0), (3, [4.0, 0.0], 8.0)]):
        params, buffers = {"z": torch.tensor([z])}, {"seen": torch.tensor([seen])}
        total.add(Update(client, 1, weight, params, buffers))
    after = method.aggregate(state, total)
    assert {name: value.tolist() for name, value in after.params.items()} == {
        "a": [[1], [2]],
        "norm": [3],
        "z": [[3, 2]],
    }
    assert after.buffers["seen"].tolist() == [7]
    assert method.plan(after, 1).keep == {"a", "norm"}


def test_a_clients_own_model_is_its_layers_before_the_shared_ones() -> None:
    method = LGFedAvg()
    kept = ClientState({"a": torch.tensor([[7.0], [8.0]]), "norm": torch.tensor([9.0])})
    own = method.personal(method.init(MODEL, seed=0), kept)
    assert own is not None
    assert {name: value.tolist() for name, value in own.items()} == {"a": [[7], [8]], "norm": [9], "z": [[4, 5]]}


def test_norms_before_the_first_shared_layer_are_local() -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2)
    )
    model, first = initial_model(module), ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert LGFedAvg(lg=SharedLayers(2)).local_names(model) == first
    assert LGFedAvg().local_names(model) == [*first, "2.weight", "2.bias", "3.weight", "3.bias"]


@pytest.mark.parametrize("k", [2, 5])
def test_something_must_stay_local(k: int) -> None:
    with pytest.raises(ModelError, match=f"lg.shared_layers must be below 2, the model's prunable layers, got {k}"):
        LGFedAvg(lg=SharedLayers(k)).init(MODEL, seed=0)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 10)
    )


LOCAL = {"1.weight", "1.bias", "2.weight", "2.bias"}
SMALL = {
    "method": "lg-fedavg",
    "rounds": 20,
    "eval_every": 4,
    "data.clients": 8,
    "cohort.size": 4,
    "local.epochs": 3,
    "local.batch": 16,
    "local.lr": 0.05,
    "lg.shared_layers": 2,
    "engine.workers": 1,
}


class Recorder(Silent):
    """Remembers what clients keep; `last` is a round to stop after."""

    def __init__(self, last: int = 0) -> None:
        self.last, self.round = last, 0
        self.kept: dict[int, ClientState] = {}

    def row(self, run: Run, row: Row) -> None:
        self.round, self.kept = row.round, dict(run.clients)

    def stop(self) -> bool:
        return bool(self.last) and self.round >= self.last


def test_clients_learn_with_layers_of_their_own(digits: Dataset) -> None:
    seen = Recorder()
    result = run(updated(RunConfig(), SMALL), model=network, data=digits, watcher=seen)
    assert result.summary.final_personal is not None
    assert result.summary.final_personal > 0.85
    assert result.summary.final_personal > result.summary.final + 0.3
    layers = [state.tensors["1.weight"] for state in seen.kept.values()]
    assert len(layers) == 8
    assert all(set(state.tensors) == LOCAL for state in seen.kept.values())
    assert not any(torch.equal(layers[0], other) for other in layers[1:])
    # 4 clients, 20 rounds: the shared layers; BatchNorm's mean and variance, and a padded counter of 8 bytes.
    shared = 24 * 16 + 16 + 16 * 10 + 10
    row = result.rows[-1]
    assert row.upload_bytes == row.download_bytes == 4 * 20 * (48 + 4 * shared + 2 * 4 * 24 + 8)
    assert row.upload_bits == row.download_bits == 4 * 20 * 32 * shared
    assert row.upload_mask_bytes == row.download_mask_bytes == 0


def test_a_cap_knows_how_little_travels(digits: Dataset) -> None:
    bytes_a_round = 4 * (48 + 4 * 570 + 200)
    config = updated(RunConfig(), {**SMALL, "rounds": 0, "cap_gib": 3 * bytes_a_round / 2**30})
    result = run(config, model=network, data=digits, watcher=Silent())
    assert [row.round for row in result.rows] == [1, 2, 3]
    assert result.summary.stopped_by == "cap"


def test_the_global_model_has_the_initial_local_layers(digits: Dataset) -> None:
    first = network()
    start = {name: value.detach().clone() for name, value in first.named_parameters()}
    result = run(updated(RunConfig(), {**SMALL, "rounds": 2}), model=first, data=digits, watcher=Silent())
    for name, value in result.model.named_parameters():
        assert torch.equal(value, start[name]) == (name in LOCAL)


def test_a_resumed_run_is_the_unbroken_one_whoever_draws_the_initial_weights(digits: Dataset, tmp_path: Path) -> None:
    """A resumed run may come with a module of other weights: what new clients begin with is in the checkpoint."""
    config, first = updated(RunConfig(), {**SMALL, "rounds": 4, "eval_every": 2, "checkpoint_every": 2}), network()
    whole, part = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "part")
    run(config, model=first, data=digits, out=whole.path, watcher=Silent())
    run(config, model=first, data=digits, out=part.path, watcher=Recorder(last=1))
    run(config, model=network(), data=digits, out=part.path, resume=True, watcher=Silent())
    assert part.checkpoint.read_bytes() == whole.checkpoint.read_bytes()
