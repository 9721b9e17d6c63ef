"""Rows and summaries, on numbers that can be checked by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feddst.core.metric import Metric
from feddst.errors import CheckpointError
from feddst.runtime.metrics import (
    GIB,
    Row,
    Summary,
    best_under,
    read_rows,
    summarise,
    worst_tenth,
    write_row,
)

ROW = Row(
    round=1,
    score=None,
    score_worst=None,
    score_global=None,
    score_personal=None,
    loss=None,
    train_loss=0.5,
    density=0.2,
    entered=0,
    left=0,
    clients=20,
    refused=0,
    upload_bytes=0,
    upload_mask_bytes=0,
    download_bytes=0,
    download_mask_bytes=0,
    upload_bits=0,
    download_bits=0,
    flops_dense=0,
    flops_sparse=0,
    seconds=1.0,
)


RMSE = Metric("rmse", higher_is_better=False)


def rows(*scores: float | None) -> list[Row]:
    return [replace(ROW, round=i, score=score, upload_bits=i * GIB) for i, score in enumerate(scores, 1)]


def test_the_worst_tenth_is_rounded_up() -> None:
    assert worst_tenth(np.linspace(0, 1, 11)) == pytest.approx(0.05)  # two of eleven: 0 and 0.1
    assert worst_tenth(np.array([0.7])) == 0.7
    assert worst_tenth(np.linspace(0, 1, 11), RMSE) == pytest.approx(0.95)  # where less is better: 0.9 and 1
    assert worst_tenth(np.array([np.nan, 0.5])) == 0.5
    assert math.isnan(worst_tenth(np.array([np.nan])))


def test_where_less_is_better_the_best_is_the_least() -> None:
    curve = [replace(row, metric=RMSE) for row in rows(0.5, 0.3, 0.6)]
    assert [best_under(curve, cap, "paper") for cap in (1, 3)] == [0.5, 0.3]
    found = summarise(curve, "rounds")
    assert (found.best, found.best_round, found.final, found.metric) == (0.3, 2, 0.6, RMSE)
    assert Summary.from_dict(json.loads(json.dumps(found.as_dict()))) == found


def test_scores_stand_under_their_metrics_name() -> None:
    row = replace(ROW, score=0.25, score_worst=0.5, metric=RMSE, others={"mae": 0.2, "mae_worst": 0.3})
    written = json.loads(write_row(row))
    assert (written["rmse"], written["rmse_worst"], written["others"]["mae"]) == (0.25, 0.5, 0.2)
    assert "accuracy" not in written
    assert Row.from_dict(written) == row
    assert [row.value(name) for name in ("rmse", "rmse_worst", "mae_worst", "f1")] == [0.25, 0.5, 0.3, None]
    usual = json.loads(write_row(replace(ROW, score=0.5)))
    assert usual["accuracy"] == 0.5
    assert "metric" not in usual


def test_best_under_a_cap() -> None:
    curve = rows(None, 0.3, 0.6, None, 0.5, 0.9)
    assert [best_under(curve, cap, "paper") for cap in (1, 2, 3.5, 5, 6)] == [None, 0.3, 0.6, 0.6, 0.9]


def test_summary() -> None:
    scores = [0.1 * i for i in range(12)] + [0.5]
    summary = summarise(rows(*scores), "rounds")
    assert summary.best == pytest.approx(1.1)
    assert (summary.best_round, summary.final, summary.rounds) == (12, 0.5, 13)
    assert summary.last_ten == pytest.approx((sum(0.1 * i for i in range(3, 12)) + 0.5) / 10)
    assert (summary.upload_gib, summary.seconds, summary.stopped_by) == (13.0, 13.0, "rounds")


def test_a_summary_has_the_forward_pass_of_the_last_row() -> None:
    first, last = (replace(row, forward_flops_dense=228, forward_flops_sparse=228) for row in rows(0.5, 0.6))
    found = summarise([first, replace(last, forward_flops_sparse=116)], "rounds")
    assert (found.forward_flops_dense, found.forward_flops_sparse) == (228, 116)
    assert summarise(rows(0.5), "rounds").forward_flops_dense is None


def test_rows_survive_the_file_and_a_torn_line_does_not(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    written = rows(None, 0.1234567890123, 0.5)
    path.write_text("".join(map(write_row, written)) + write_row(ROW)[:20])
    assert read_rows(path) == written
    assert read_rows(path, last_round=2) == written[:2]


def test_rows_from_before_headers_and_forward_passes_were_counted_are_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    later = ("upload_header_bytes", "download_header_bytes", "forward_flops_dense", "forward_flops_sparse")
    older = {name: value for name, value in ROW.as_dict().items() if name not in later}
    path.write_text(json.dumps(older) + "\n")
    assert read_rows(path) == [ROW]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(write_row(ROW) + "{not json}\n")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl, line 2, is damaged"):
        read_rows(path)


@pytest.mark.parametrize(
    "strange",
    [
        {"metric": {"name": "f1\n- x", "higher_is_better": True, "percent": False}, "f1\n- x": 0.5},
        {"others": {"f1 <b>": 0.5}},
        {"others": {"f1": "0.5"}},
        {"others": [0.5]},
    ],
)
def test_a_strangers_metrics_are_names_and_numbers(strange: dict[str, object], tmp_path: Path) -> None:
    """They come onto pages and into other files."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(ROW.as_dict() | strange) + "\n")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl, line 1, is damaged"):
        read_rows(path)
