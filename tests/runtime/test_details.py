"""What is told of a run beyond its rows: by hand, against its masks and updates, and the same after a resume."""

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from feddst.core import Update
from feddst.core.metric import Metric
from feddst.data import Dataset
from feddst.errors import CheckpointError
from feddst.runtime import RunConfig, run
from feddst.runtime.detail_log import shares
from feddst.runtime.details import (
    BINS,
    Detail,
    LayerLife,
    PixelMap,
    read_details,
    score_counts,
    span_of,
    unevaluated,
    write_detail,
)
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.wire import decode_update

Configure = Callable[..., RunConfig]

LAYERS = (LayerLife("w", 10, 4, 1, 2, 0.25), LayerLife("v", 6, 6, 0, 0))
PICTURE = PixelMap("w", ((0.5, 0.25), (0.0, 1.0)))
DETAILS = [Detail(1, layers=LAYERS), Detail(4, clients=(0, 3), inputs=PICTURE), Detail(7, LAYERS, (1, 2), PICTURE)]


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))


class StopAfter(Silent):
    """Ends a run early, as Ctrl-C does."""

    def __init__(self, round: int) -> None:
        self.last, self.seen = round, 0

    def row(self, run: Run, row: Row) -> None:
        self.seen = row.round

    def stop(self) -> bool:
        return self.seen >= self.last


@pytest.fixture
def told(tmp_path: Path, small_config: Configure, small_data: Dataset) -> Callable[..., list[Detail]]:
    """What is told of a small run."""

    def play(**changes: Any) -> list[Detail]:
        run(small_config(**changes), model=network, data=small_data, out=tmp_path / "run", watcher=Silent())
        return RunDirectory(tmp_path / "run").details()

    return play


def test_details_survive_the_file_and_a_torn_line_does_not(tmp_path: Path) -> None:
    path = tmp_path / "details.jsonl"
    path.write_text("".join(map(write_detail, DETAILS)) + write_detail(DETAILS[0])[:20])
    assert read_details(path) == DETAILS
    assert read_details(path, last_round=6) == DETAILS[:2]
    assert read_details(path, last_round=0) == []


def test_damage_is_named_unless_it_comes_after_what_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "details.jsonl"
    first, second, third = (write_detail(detail).encode() for detail in DETAILS)
    path.write_bytes(first + second + bytes(9) + b"\xff\n" + third)
    assert read_details(path, last_round=6) == DETAILS[:2]
    for last in (7, None):
        with pytest.raises(CheckpointError, match=r"details\.jsonl, line 3, is damaged"):
            read_details(path, last)
    for odd in (b'{"round":"5","layers":[],"clients":null,"inputs":null}\n', b"[" * 10**5 + b"\n"):
        path.write_bytes(first + second + odd)
        assert read_details(path, last_round=6) == DETAILS[:2]
        with pytest.raises(CheckpointError, match="line 3, is damaged"):
            read_details(path)
    path.write_bytes(first + second + b"[1]\n{}\n" + third[:9])
    assert read_details(path, last_round=6) == DETAILS[:2]
    with pytest.raises(CheckpointError, match="line 3, is damaged"):
        read_details(path)


def test_a_directory_without_details_has_none(tmp_path: Path) -> None:
    assert RunDirectory(tmp_path).details() == []


def test_scores_are_counted_in_twentieths() -> None:
    found = score_counts(np.array([0.0, 0.049, 0.05, 0.5, 0.999, 1.0, 1.0]), None)
    assert len(found) == BINS
    assert {place: count for place, count in enumerate(found) if count} == {0: 2, 1: 1, 10: 1, 19: 3}
    borders = np.array([step / BINS for step in range(BINS)])
    assert score_counts(borders, None) == (1,) * BINS


def test_scores_that_are_no_shares_are_counted_between_the_least_and_the_largest() -> None:
    scores = np.array([3.0, 4.0, 5.0, np.nan])
    rmse = Metric("rmse", higher_is_better=False)
    assert span_of(scores, rmse) == (3.0, 5.0)
    found = score_counts(scores, (3.0, 5.0))
    assert {place: count for place, count in enumerate(found) if count} == {0: 1, 10: 1, 19: 1}
    assert span_of(np.array([0.2, 0.4]), Metric("accuracy", percent=True)) is None
    assert span_of(np.array([2.0, 2.0]), rmse) == (2.0, 3.0)


def test_without_its_evaluation_a_round_may_have_nothing_to_tell() -> None:
    assert unevaluated(DETAILS, 4) == [DETAILS[0], DETAILS[2]]
    assert unevaluated(DETAILS, 7) == [DETAILS[0], DETAILS[1], Detail(7, LAYERS)]
    assert unevaluated(DETAILS, 5) == DETAILS


def test_shares_by_hand() -> None:
    mask = torch.zeros(3, 2, 2, 2, dtype=torch.bool)  # three outputs, two channels of 2×2 places
    mask[:, :, 0, 0] = True
    mask[1, 0, 1, 0] = True
    assert shares(mask.reshape(3, 8), (2, 2, 2)) == ((1.0, 0.0), (0.167, 0.0))


def test_what_is_told_is_what_happened(
    tmp_path: Path, small_config: Configure, small_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates: list[Update] = []

    def noting(*args: Any) -> Update:
        updates.append(decode_update(*args))
        return updates[-1]

    monkeypatch.setattr(sys.modules["feddst.runtime.rounds"], "decode_update", noting)
    config = small_config(data__partition="dirichlet", data__beta=0.5, readjust__every=3, readjust__until=9)
    result = run(config, model=network, data=small_data, out=tmp_path / "run", watcher=Silent())
    assert len({update.weight for update in updates}) > 1
    details = {detail.round: detail for detail in RunDirectory(tmp_path / "run").details()}
    assert list(details) == [1, 2, 3, 4, 6]  # the first, those with an evaluation, and 3 and 6 with a readjustment
    assert [number for number, detail in details.items() if detail.layers] == [1, 3, 6]
    assert [number for number, detail in details.items() if detail.clients] == [2, 4, 6]
    assert [number for number, detail in details.items() if detail.inputs] == [2, 4, 6]
    for row in result.rows:
        detail = details.get(row.round, Detail(row.round))
        assert sum(layer.entered for layer in detail.layers) == row.entered
        assert sum(layer.left for layer in detail.layers) == row.left
        if detail.layers:
            assert [(layer.name, layer.size) for layer in detail.layers] == [("1.weight", 432), ("4.weight", 48)]
            assert sum(layer.active for layer in detail.layers) == pytest.approx(row.density * 480)
        assert (detail.clients is None) == (row.accuracy is None)
        if detail.clients is not None:
            assert sum(detail.clients) == 8
            middle = sum(count * (place + 0.5) / BINS for place, count in enumerate(detail.clients)) / 8
            assert middle == pytest.approx(row.accuracy, abs=0.5 / BINS)
    assert all(layer.apart is None for layer in details[1].layers)
    for number in (3, 6):
        masks = [update.masks for update in updates if update.round == number]
        for layer in details[number].layers:
            held = [mask[layer.name] for mask in masks if mask is not None]
            assert len(held) == 4
            lacking = [int((one & ~other).sum()) / int(one.sum()) for one, other in permutations(held, 2)]
            assert layer.apart == pytest.approx(sum(lacking) / len(lacking))
        assert any(layer.apart for layer in details[number].layers)
    last = details[6].inputs
    assert last is not None
    assert last.layer == "1.weight"
    assert np.array(last.rows) == pytest.approx(
        result.masks["1.weight"].double().mean(0).reshape(6, 6).numpy(), abs=5e-4
    )


def test_a_mask_that_does_not_move_is_shown_once(told: Callable[..., list[Detail]]) -> None:
    details = told(method="randommask")
    assert [(one.round, bool(one.layers), one.inputs is not None) for one in details] == [
        (1, True, False),
        (2, False, True),
        (4, False, False),
        (6, False, False),
    ]


def test_a_dense_method_has_no_mask_to_show(told: Callable[..., list[Detail]]) -> None:
    details = told(method="fedavgm")
    assert [one.round for one in details] == [1, 2, 4, 6]
    assert [(layer.active, layer.apart) for layer in details[0].layers] == [(432, None), (48, None)]
    assert all(one.inputs is None for one in details)


def test_a_mask_that_is_found_before_the_first_round_is_told_of_there(told: Callable[..., list[Detail]]) -> None:
    details = told(method="snip")
    assert [one.round for one in details] == [0, 2, 4, 6]
    assert sum(layer.active for layer in details[0].layers) == 96
    assert details[0].inputs is not None  # round 0 is evaluated


def test_clients_with_tickets_of_their_own_are_told_of(told: Callable[..., list[Detail]]) -> None:
    details = told(method="lotteryfl", rounds=1, lottery__threshold=0.0, lottery__prune=0.5)
    # At first all have the same weights, and so drop the same half of them. The server's model stays dense.
    assert [(layer.active, layer.apart) for layer in details[0].layers] == [(432, 0.0), (48, 0.0)]


def test_a_resumed_run_tells_the_same(tmp_path: Path, small_config: Configure, small_data: Dataset) -> None:
    """Stopped after each of some rounds in turn, between a mask's movement and its being shown as well as after."""
    config = small_config(eval_every=3, readjust__until=8, checkpoint_every=4, local__epochs=1)
    run(config, model=network, data=small_data, out=tmp_path / "whole", watcher=Silent())
    for stop in (2, 3, 4, 5):
        run(config, model=network, data=small_data, out=tmp_path / "part", watcher=StopAfter(stop), resume=stop > 2)
    run(config, model=network, data=small_data, out=tmp_path / "part", watcher=Silent(), resume=True)
    whole, part = (RunDirectory(tmp_path / name) for name in ("whole", "part"))
    assert part.details_file.read_bytes() == whole.details_file.read_bytes()
    assert [(one.round, bool(one.layers), one.inputs is not None) for one in whole.details()] == [
        (1, True, False),
        (2, True, False),
        (3, False, True),
        (4, True, False),
        (6, True, True),
    ]


def test_a_run_taken_further_tells_the_same(tmp_path: Path, small_config: Configure, small_data: Dataset) -> None:
    """Its former last rounds, 4 and 5, were evaluated, and their masks shown, only because they were the last."""
    shown = {}
    for name, lengths in (("whole", (6,)), ("part", (4, 5, 6))):
        for rounds in lengths:
            config = small_config(rounds=rounds, eval_every=3, readjust__until=8, local__epochs=1)
            resume = rounds != lengths[0]
            run(config, model=network, data=small_data, out=tmp_path / name, watcher=Silent(), resume=resume)
            shown[name, rounds] = RunDirectory(tmp_path / name).details()
    for last in (4, 5):
        assert shown["part", last][-1].round == last
        assert shown["part", last][-1].inputs is not None
    assert shown["part", 6] == shown["whole", 6]


def test_a_run_from_before_there_were_details_goes_on(
    tmp_path: Path, small_config: Configure, small_data: Dataset, unseal_run: Callable[[Path], RunDirectory]
) -> None:
    config = small_config(readjust__until=8, local__epochs=1)
    run(config, model=network, data=small_data, out=tmp_path / "run", watcher=StopAfter(3))
    files = unseal_run(tmp_path / "run")
    files.details_file.unlink()
    result = run(config, model=network, data=small_data, out=tmp_path / "run", watcher=Silent(), resume=True)
    assert result.finished
    assert [(one.round, one.inputs is not None) for one in files.details()] == [(4, True), (6, True)]


def test_a_run_without_a_directory_works_nothing_out(
    small_config: Configure, small_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(sys.modules["feddst.runtime.run"], "input_grids", never)
    monkeypatch.setattr("feddst.core.holders.Holders.__init__", never)
    result = run(small_config(), model=network, data=small_data, watcher=Silent())
    assert any(row.entered for row in result.rows)


def test_a_detail_that_tells_nothing_is_known_as_such() -> None:
    assert not Detail(3).tells
    assert all(
        replace(Detail(3), **{name: value}).tells
        for name, value in vars(DETAILS[2]).items()
        if name not in ("round", "span")
    )
