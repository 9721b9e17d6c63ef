"""Rows and summaries, on numbers that can be checked by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feddst.errors import CheckpointError
from feddst.runtime.metrics import (
    GIB,
    Row,
    best_under,
    client_accuracies,
    read_rows,
    summarise,
    worst_tenth,
    write_row,
)

ROW = Row(
    round=1,
    accuracy=None,
    accuracy_worst=None,
    accuracy_global=None,
    accuracy_personal=None,
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


def rows(*accuracies: float | None) -> list[Row]:
    return [replace(ROW, round=i, accuracy=accuracy, upload_bits=i * GIB) for i, accuracy in enumerate(accuracies, 1)]


def test_accuracy_is_each_clients_own() -> None:
    correct = np.array([True, True, False, False])
    tests = [np.array([0, 1]), np.array([1, 2]), np.array([3])]
    assert client_accuracies(correct, tests).tolist() == [1.0, 0.5, 0.0]


def test_the_worst_tenth_is_rounded_up() -> None:
    assert worst_tenth(np.linspace(0, 1, 11)) == pytest.approx(0.05)  # two of eleven: 0 and 0.1
    assert worst_tenth(np.array([0.7])) == 0.7


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
    older = {name: value for name, value in vars(ROW).items() if name not in later}
    path.write_text(json.dumps(older) + "\n")
    assert read_rows(path) == [ROW]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(write_row(ROW) + "{not json}\n")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl, line 2, is damaged"):
        read_rows(path)
