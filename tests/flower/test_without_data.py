"""A server that has never seen an image."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from torch import Tensor, nn

import feddst
from feddst.data import Federation
from feddst.errors import OptionError
from feddst.flower import FlowerConfig, Strategy
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory

Configure = Callable[..., RunConfig]
Alike = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], bool]

EXAMPLE = torch.zeros(1, 1, 6, 6)


def normalised() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))


@pytest.mark.parametrize(
    ("method", "buffers"),
    [("feddst", False), ("feddst", True), ("lg-fedavg", False), ("prunefl", True), ("sign-sgd", False)],
)
def test_a_server_without_data_trains_the_same_model(
    method: str,
    buffers: bool,
    configure: Configure,
    federation: Federation,
    make_grid: Any,
    alike: Alike,
    network: Any,
) -> None:
    config, model = configure(method=method, rounds=5, cohort__size=4), normalised if buffers else network
    tested: dict[int, ArrayRecord] = {}

    def test(round: int, arrays: ArrayRecord) -> MetricRecord:
        tested[round] = arrays
        return MetricRecord({"round": round})

    strategy = Strategy(config, model=model, example=EXAMPLE, watcher=Silent(), flower=FlowerConfig(wait=5))
    result = strategy.start(make_grid(model=model), evaluate_fn=test)
    assert list(tested)[-3:] == [2, 4, 5]  # a round 0 is tested where there is one
    assert {round: metrics["round"] for round, metrics in result.evaluate_metrics_serverapp.items()} == {
        round: round for round in tested
    }
    trained = model()
    trained.load_state_dict(result.arrays.to_torch_state_dict())
    assert alike(trained.state_dict(), tested[5].to_torch_state_dict())
    assert not alike(tested[2].to_torch_state_dict(), tested[5].to_torch_state_dict())
    expected = feddst.run(config, model=model, data=federation, watcher=Silent())
    assert alike(trained.state_dict(), expected.model.state_dict())
    last = result.train_metrics_clientapp[5]
    assert (last["upload_bytes"], last["clients"]) == (expected.rows[-1].upload_bytes, 4)
    assert "accuracy" not in last


def test_without_a_function_nothing_is_tested(configure: Configure, make_grid: Any, network: Any) -> None:
    strategy = Strategy(configure(), model=network, example=EXAMPLE, watcher=Silent(), flower=FlowerConfig(wait=5))
    result = strategy.start(make_grid())
    assert not result.evaluate_metrics_serverapp
    assert list(result.train_metrics_clientapp) == [1, 2, 3]


def test_a_server_with_data_can_be_given_a_test_of_its_own(
    configure: Configure, federation: Federation, make_grid: Any, network: Any
) -> None:
    tested: list[int] = []
    strategy = Strategy(configure(), model=network, data=federation, watcher=Silent(), flower=FlowerConfig(wait=5))
    result = strategy.start(make_grid(), evaluate_fn=lambda round, arrays: tested.append(round))
    assert tested == [2, 3]
    assert not result.evaluate_metrics_serverapp
    assert "accuracy" in result.train_metrics_clientapp[2]


def test_a_module_of_the_users_is_left_as_it_was(configure: Configure, make_grid: Any, alike: Alike) -> None:
    module = normalised().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    strategy = Strategy(configure(), model=module, example=EXAMPLE, watcher=Silent(), flower=FlowerConfig(wait=5))
    result = strategy.start(make_grid(model=module))
    assert module.training
    assert alike(module.state_dict(), before)
    assert not alike(result.arrays.to_torch_state_dict(), before)


@pytest.mark.parametrize("others", [{}, {"model": normalised, "data": True}], ids=["no model", "data too"])
def test_an_example_stands_in_for_data_of_a_model_of_ones_own(
    others: dict[str, Any], configure: Configure, federation: Federation
) -> None:
    if "data" in others:
        others = {**others, "data": federation}
    with pytest.raises(OptionError, match="an example input is for a model of your own"):
        Strategy(configure(), example=EXAMPLE, **others)


@pytest.mark.parametrize("told", [{"num_rounds": 0}, {"num_rounds": -1}, {"timeout": 0.0}, {"timeout": -1.0}])
def test_what_a_start_is_told_is_checked(
    told: dict[str, Any], configure: Configure, federation: Federation, make_grid: Any, network: Any
) -> None:
    class Once(Silent):
        def stop(self) -> bool:
            return True

    strategy = Strategy(configure(), model=network, data=federation, watcher=Once(), flower=FlowerConfig(wait=5))
    with pytest.raises(OptionError):
        strategy.start(make_grid(), **told)


def test_clients_are_told_what_to_do_by_the_config_alone(
    configure: Configure, federation: Federation, make_grid: Any, network: Any
) -> None:
    strategy = Strategy(configure(), model=network, data=federation, watcher=Silent())
    with pytest.raises(OptionError, match="train_config and evaluate_config must be empty"):
        strategy.start(make_grid(), train_config=ConfigRecord({"lr": 0.1}))


def test_a_client_that_comes_as_a_round_begins_is_not_refused_for_want_of_its_images(
    configure: Configure, make_grid: Any, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = make_grid()
    contexts, grid._contexts = grid._contexts, {1: grid._contexts[1]}
    rows: list[Row] = []

    class Adding(Silent):
        def row(self, run: Run, row: Row) -> None:
            rows.append(row)
            grid._contexts = contexts

    strategy = Strategy(
        configure(rounds=2), model=network, example=EXAMPLE, watcher=Adding(), flower=FlowerConfig(wait=0, deadline=5)
    )
    strategy.start(grid)
    assert [(row.clients, row.refused) for row in rows] == [(1, 0), (6, 0)]


def test_what_was_never_tested_has_a_summary_without_scores(
    configure: Configure, make_grid: Any, network: Any, tmp_path: Path
) -> None:
    flower = FlowerConfig(wait=5)
    strategy = Strategy(
        configure(), model=network, example=EXAMPLE, watcher=Silent(), flower=flower, out=tmp_path / "run"
    )
    strategy.start(make_grid())
    text = (tmp_path / "run" / "summary.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["best"] is None
    summary = RunDirectory(tmp_path / "run").finished()
    assert summary is not None
    assert math.isnan(summary.best)


def test_a_client_cannot_claim_to_have_more_images_than_allowed(
    configure: Configure, make_grid: Any, network: Any, caplog: pytest.LogCaptureFixture
) -> None:
    flower = FlowerConfig(wait=0.5, most_images=12)  # clients have 8, 10, … 18
    strategy = Strategy(configure(rounds=1), model=network, example=EXAMPLE, watcher=Silent(), flower=flower)
    result = strategy.start(make_grid())
    assert result.train_metrics_clientapp[1]["clients"] == 3
    assert "node 6, client 5, says it has 18 images" in caplog.text


def test_a_server_says_at_the_end_how_well_its_model_does(
    configure: Configure, federation: Federation, make_grid: Any, network: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    flower = FlowerConfig(wait=5)
    ways: list[tuple[dict[str, Any], Any, str]] = [
        ({"data": federation}, None, "accuracy "),
        ({"example": EXAMPLE}, lambda round, arrays: MetricRecord({"accuracy": 0.91234}), "accuracy 0.9123"),
        ({"example": EXAMPLE}, None, "nothing is known of its accuracy: the server has neither data nor evaluate_fn"),
    ]
    for told, evaluate, expected in ways:
        Strategy(configure(rounds=1), model=network, flower=flower, **told).start(make_grid(), evaluate_fn=evaluate)
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith(f"feddst, seed 0, after 1 round: {expected}")
