"""`python -m benchmarks.wire` from the outside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

SMALL = "wire --networks mnist-cnn --levels 0.99 --alphas 0.05 --repeats 1"


def test_a_bench_prints_tables_and_writes_both_files(bench: Call, tmp_path: Path) -> None:
    outcome = bench(f"{SMALL} --out mine/wire.json --markdown wire.md")
    assert outcome.code == 0
    assert outcome.err.splitlines() == [
        "mnist-cnn, S = 0.99",
        "mnist-cnn, the cost of a call",
        "record: mine/wire.json",
        "tables: wire.md",
    ]
    record = json.loads((tmp_path / "mine/wire.json").read_text())
    assert record["command"] == f"python -m benchmarks.{SMALL}"
    assert len(record["values"]) == 12
    page = (tmp_path / "wire.md").read_text()
    for title in ("Targets", "Values", "Mask differences"):
        assert f"\n{title}\n" in outcome.out
        assert f"\n## {title}\n" in page


def test_without_a_place_the_record_goes_to_runs(bench: Call, tmp_path: Path) -> None:
    assert bench(SMALL).err.endswith("record: runs/bench-wire.json\n")
    assert (tmp_path / "runs/bench-wire.json").is_file()


@pytest.mark.parametrize("place", ["out", "markdown"])
def test_files_are_not_overwritten(bench: Call, tmp_path: Path, place: str) -> None:
    (tmp_path / "mine").write_text("years of work")
    outcome = bench(f"{SMALL} --{place} mine")
    assert (outcome.code, outcome.out, outcome.err) == (2, "", "feddst: mine exists already\n")
    assert (tmp_path / "mine").read_text() == "years of work"


def test_help(bench: Call) -> None:
    lines = bench("wire --help").out.splitlines()
    for option in ("networks", "levels", "alphas", "repeats", "seed", "out", "markdown"):
        assert any(line.startswith(f"  --{option} ") for line in lines)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("wire --networks mnist", "networks must be one of mnist-cnn, cifar10-cnn, cifar100-cnn, resnet18, got"),
        ("wire --levels 1", "levels must be in [0, 1), got 1.0"),
        ("wire --levels=", "levels must not be empty"),
        ("wire --repeats 0", "repeats must be at least 1, got 0"),
        ("wire --out x --markdown x", "out and markdown must be two files, got x twice"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(bench: Call, tmp_path: Path, line: str, message: str) -> None:
    outcome = bench(line)
    assert outcome.code == 2
    assert outcome.err.startswith(f"feddst: {message}")
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
