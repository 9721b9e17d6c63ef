"""A moving average of the model: by hand, within the mask, and the same in a resumed run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import feddst
from feddst.core import ServerState
from feddst.data import Dataset
from feddst.options import updated
from feddst.runtime import RunConfig
from feddst.runtime.ema import result_of, with_average
from feddst.runtime.loop import Silent

from .conftest import small_network


def state(round: int, w: list[float], mask: list[bool] | None = None) -> ServerState:
    masks = {} if mask is None else {"w": torch.tensor(mask)}
    return ServerState(round=round, seed=0, params={"w": torch.tensor(w)}, masks=masks)


def test_by_hand() -> None:
    first = with_average(state(1, [0.0, 0.0]), state(2, [11.0, 22.0]), 0.9)
    assert result_of(first).params["w"].tolist() == pytest.approx([9.0, 18.0])  # of 11 and 22, 9/11: d = 2/11
    late = ServerState(round=100, seed=0, params={"w": torch.tensor([5.0, 5.0])}, extra={"average/w": torch.ones(2)})
    assert result_of(with_average(late, state(101, [2.0, 3.0]), 0.9)).params["w"].tolist() == pytest.approx([1.1, 1.2])


def test_what_has_left_the_mask_is_not_in_the_average() -> None:
    after = with_average(state(1, [1.0, 1.0], [True, True]), state(2, [3.0, 0.0], [True, False]), 0.5)
    assert result_of(after).params["w"][1] == 0


def test_a_weight_that_enters_is_averaged_over_the_rounds_since() -> None:
    """d = ½ throughout: 4 alone; 4 and 10 as 1 : 2; 4, 10 and 3 as 1 : 2 : 4. The other: 1 and 3 as 1 : 1, then on."""
    one = state(10, [1.0, 0.0], [True, False])
    wanted = [[2.0, 4.0], [2.5, 8.0], [2.75, 36 / 7]]
    for r, (values, result) in enumerate(zip(([3.0, 4.0], [3.0, 10.0], [3.0, 3.0]), wanted, strict=True), start=11):
        after = state(r, values, [True, True])
        one = with_average(one, after, 0.5)
        assert result_of(one).params["w"].tolist() == pytest.approx(result)
    gone = with_average(one, state(14, [3.0, 0.0], [True, False]), 0.5)
    back = with_average(gone, state(15, [3.0, 7.0], [True, True]), 0.5)
    assert result_of(gone).params["w"][1] == 0
    assert result_of(back).params["w"][1] == 7


def test_statistics_are_averaged_and_counters_are_not() -> None:
    buffers = [{"mean": torch.tensor([value]), "count": torch.tensor(round(value))} for value in (2.0, 6.0)]
    before, after = (replace(state(10 + i, [0.0]), buffers=buffers[i]) for i in range(2))
    found = result_of(with_average(before, after, 0.5)).buffers
    assert found["mean"].tolist() == [4.0]
    assert found["count"] == 6


def test_without_it_the_model_is_the_last() -> None:
    after = state(2, [3.0])
    assert with_average(state(1, [1.0]), after, 0.0) is after
    assert result_of(after).params["w"].tolist() == [3.0]


@pytest.mark.parametrize(
    "options",
    [{"method": "feddst"}, {"method": "fedavgm-server"}, {"method": "feddst", "server__optimizer": "adam"}],
    ids=["feddst", "fedavgm-server", "adam"],
)
def test_training_is_the_same_and_a_resumed_run_too(
    small_config: Callable[..., RunConfig], small_data: Dataset, tmp_path: Path, options: dict[str, str]
) -> None:
    config = small_config(**options, rounds=5, ema=0.8, eval_every=1)
    whole = feddst.run(config, data=small_data, model=small_network, out=tmp_path / "whole", watcher=Silent())
    plain = feddst.run(
        updated(config, {"ema": 0.0}),
        data=small_data,
        model=small_network,
        out=tmp_path / "plain",
        watcher=Silent(),
    )
    feddst.run(
        updated(config, {"rounds": 3}), data=small_data, model=small_network, out=tmp_path / "parts", watcher=Silent()
    )
    parts = feddst.run(
        config, data=small_data, model=small_network, out=tmp_path / "parts", resume=True, watcher=Silent()
    )
    assert [row.train_loss for row in whole.rows] == [row.train_loss for row in plain.rows]
    assert [row.loss for row in whole.rows] != [row.loss for row in plain.rows]
    assert [row.loss for row in whole.rows] == [row.loss for row in parts.rows]
    kept = [(tmp_path / name / "checkpoint.safetensors").read_bytes() for name in ("whole", "parts")]
    assert kept[0] == kept[1]
    loaded = feddst.load(tmp_path / "whole", model=whole.model)
    assert all(
        torch.equal(one, other) for one, other in zip(loaded.parameters(), whole.model.parameters(), strict=True)
    )
