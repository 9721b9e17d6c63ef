"""The life of masks: what the script computes, by hand, and that the record is its."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import feddst

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script(script_named: Callable[[str], ModuleType]) -> ModuleType:
    return script_named("mask_life")


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "results/mask-life.json").read_text())
    return content


def history(*masks: str) -> list[torch.Tensor]:
    return [torch.tensor([digit == "1" for digit in mask]) for mask in masks]


def test_survival_by_hand(script: ModuleType) -> None:
    # Change 1: e and f enter; change 2: f leaves, g enters; change 3: e leaves, f comes back; change 4: g leaves.
    entered, original = script.survival(history("1111000", "1100110", "1100101", "1100011", "1100010"))
    # After one change more: e of e and f, g of g, f of f. After two: neither e nor f, not g. After three: neither.
    assert entered == [3 / 4, 0, 0]
    assert original == [2 / 4] * 4


def test_whoever_comes_back_has_not_stayed(script: ModuleType) -> None:
    assert script.survival(history("10", "01", "10", "11")) == ([1 / 2, 0], [0, 0, 0])


def test_the_last_change_tells_nothing_of_what_enters(script: ModuleType) -> None:
    assert script.survival(history("110", "011")) == ([], [1 / 2])


def test_who_was_spared_leaves_later(script: ModuleType) -> None:
    assert script.first_to_leave({"survival": {"entered": [1.0, 1.0, 0.25, 0.125]}}) == 0.75


@pytest.mark.usefixtures("tiny_mnist")
def test_a_mask_is_watched_as_it_changes(script: ModuleType) -> None:
    options = {
        "method": "sprout",
        "sprout.every": 1,
        "sprout.alpha": 0.2,
        "sprout.until": 3,
        "sparsity.level": 0.95,
        "sprout.start": 0.95,
        "sprout.spread": "same",
    }
    options |= {"data.dataset": "mnist", "data.clients": 4, "data.images_per_class": 4, "cohort.size": 2}
    found = script.watched("tiny", {**options, "rounds": 2, "local.epochs": 1, "engine.workers": 1})
    assert found["rounds"] == [1, 2]
    layers = found["layers"].values()
    for layer in layers:
        active = layer["active_at_first"]
        assert layer["active"] == [active] * 2
        moved = [round(alpha * active) for alpha in (0.15, 0.05)]  # α/2 (1 ± cos 60°)
        assert layer["entered"] == layer["left"] == moved
        assert layer["newest_unmoved"] == layer["entered"][:1]  # a round before the change it had just entered
        assert layer["movement"] > 0
    stayed, entered = sum(layer["newest_stayed"][0] for layer in layers), sum(layer["entered"][0] for layer in layers)
    assert 0 < stayed < entered
    assert found["survival"]["entered"] == [pytest.approx(stayed / entered, rel=1e-3)]
    assert found["median_size"]["newest"] == found["median_size"]["ratio"] == [0]
    assert found["median_size"]["others"][0] > 0


def test_every_row_can_be_made(script: ModuleType) -> None:
    for own in script.ROWS.values():
        feddst.configure(**{**script.shared_options(), **own})


def test_the_record_is_of_the_rows_that_the_script_has(script: ModuleType, record: dict[str, Any]) -> None:
    assert {name: row["options"] for name, row in record["rows"].items()} == script.ROWS
    for row in record["rows"].values():
        assert {len(layer["active"]) for layer in row["layers"].values()} == {len(row["rounds"])}
        assert len(row["median_size"]["ratio"]) == len(row["survival"]["entered"]) == len(row["rounds"]) - 1
