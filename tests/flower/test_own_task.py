"""A federation whose clients minimise a loss of the user's own, on data of the user's own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context
from torch import Tensor, nn

import feddst
from feddst.core import Examples
from feddst.data import Federation
from feddst.engines import EngineConfig
from feddst.errors import OptionError
from feddst.flower import FlowerConfig, InProcessGrid, Strategy, client_app
from feddst.runtime.config import config_of
from feddst.runtime.loop import Silent

from .conftest import SMALL

CLIENTS = 3
QUICK = FlowerConfig(wait=5)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def fourth(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss that no objective of ours has, one for each example."""
    return (outputs - targets).pow(4).mean(dim=1)


def far(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs().amax(dim=1)


far.higher_is_better = False  # type: ignore[attr-defined]


def pair(count: int, seed: int) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs[:, :2] * 0.5 + 1


@pytest.fixture
def people() -> Federation:
    return Federation.from_clients([pair(12 + client, client) for client in range(CLIENTS)], pair(20, 9))


class Once(Silent):
    """Stops after the first round that it hears of."""

    def stop(self) -> bool:
        return True


def grid(people: Federation, **changes: Any) -> InProcessGrid:
    def mine(context: Context) -> Examples:
        return people.client_data(int(context.node_config["partition-id"]))

    given = {"loss": fourth, "engine": EngineConfig(kind="reference"), **changes}
    return InProcessGrid(client_app(net, mine, **given), CLIENTS)


@pytest.mark.parametrize("method", ["fedavg", "feddst"])
def test_a_loss_of_ones_own_has_the_bits_of_a_run_and_goes_on(method: str, people: Federation, tmp_path: Path) -> None:
    sizes = {"data.clients": CLIENTS, "cohort.size": CLIENTS, "eval_every": 1, "local.lr": 0.01}
    config = config_of({**SMALL, **sizes, "method": method})
    own: dict[str, Any] = {"model": net, "data": people, "loss": fourth, "metrics": {"far": far}}
    expected = feddst.run(config, **own, watcher=Silent())
    result = Strategy(config, **own, watcher=Silent(), flower=QUICK).start(grid(people))
    assert result.arrays is not None
    trained = result.arrays.to_torch_state_dict()
    assert all(torch.equal(value, trained[name]) for name, value in expected.model.state_dict().items())
    last, row = result.train_metrics_clientapp[3], expected.rows[-1]
    assert (last["far"], last["far_worst"], last["test_loss"]) == (row.score, row.score_worst, row.others["test_loss"])
    assert "accuracy" not in last
    Strategy(config, **own, out=tmp_path / "run", watcher=Once(), flower=QUICK).start(grid(people))
    rest = Strategy(config, **own, out=tmp_path / "run", resume=True, watcher=Silent(), flower=QUICK).start(
        grid(people)
    )
    assert rest.arrays is not None
    again = rest.arrays.to_torch_state_dict()
    assert list(rest.train_metrics_clientapp)[-1] == 3
    assert 1 < len(result.train_metrics_clientapp) > len(rest.train_metrics_clientapp)
    assert all(torch.equal(value, trained[name]) for name, value in again.items())


def test_the_closing_line_has_the_task_s_own_metric(people: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"data.clients": CLIENTS, "cohort.size": CLIENTS, "rounds": 1, "local.objective": "squared-error"}
    config = config_of({**SMALL, **sizes, "method": "fedavg"})
    Strategy(config, model=net, data=people, flower=QUICK).start(grid(people, loss=None))
    *lines, closing = capsys.readouterr().err.splitlines()
    assert ", round 1: rmse 0." in lines[-1] or ", round 1: rmse 1." in lines[-1]
    assert ", after 1 round: rmse " in closing
    example = Strategy(config, model=net, example=torch.zeros(1, 6), flower=QUICK)
    example.start(grid(people, loss=None))
    closing = capsys.readouterr().err.splitlines()[-1]
    assert closing.endswith("nothing is known of its rmse: the server has neither data nor evaluate_fn")


def test_a_wrong_loss_is_refused_on_both_sides(people: Federation) -> None:
    with pytest.raises(OptionError, match="loss must be a function of outputs and targets"):
        grid(people, loss=3)
    with pytest.raises(OptionError, match="loss must be a function of outputs and targets"):
        Strategy(config_of(SMALL), model=net, loss=3)  # type: ignore[arg-type]
