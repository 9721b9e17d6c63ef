"""`python -m benchmarks.cpu` from the outside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


SMALL = (
    "cpu --jobs mnist --sparsities 0.9 --parts rounds,evaluation --turns 1 --rounds 1 --clients 2 --epochs 1 "
    "--workers 1"
)


def test_a_bench_prints_tables_and_writes_both_files(
    bench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.cpu.arithmetic.SIZE", 64)
    outcome = bench(f"{SMALL} --out mine/cpu.json --markdown cpu.md")
    assert outcome.code == 0
    assert [line.partition(": ")[0] for line in outcome.err.splitlines()] == [
        "mnist, turn 1 of 1, PyTorch",
        "mnist, turn 1 of 1, native, S = 0.9, ERK",
        "mnist, turn 1 of 1, native, S = 0.9, uniform",
        "mnist, evaluation",
        "record",
        "tables",
    ]
    record = json.loads((tmp_path / "mine/cpu.json").read_text())
    assert record["command"] == f"python -m benchmarks.{SMALL}"
    assert [row["runner"] for row in record["rounds"]] == ["PyTorch", "native", "native"]
    page = (tmp_path / "cpu.md").read_text()
    for title in ("Targets", "Rounds", "Arithmetic", "Evaluation"):
        assert f"\n{title}\n" in outcome.out
        assert f"\n## {title}\n" in page


@pytest.mark.parametrize("place", ["out", "markdown"])
def test_files_are_not_overwritten(bench: Call, tmp_path: Path, place: str) -> None:
    (tmp_path / "mine").write_text("years of work")
    outcome = bench(f"{SMALL} --{place} mine")
    assert (outcome.code, outcome.out, outcome.err) == (2, "", "feddst: mine exists already\n")
    assert (tmp_path / "mine").read_text() == "years of work"


def test_help(bench: Call) -> None:
    lines = bench("cpu --help").out.splitlines()
    for option in ("jobs", "sparsities", "parts", "turns", "rounds", "workers", "reference", "out", "markdown"):
        assert any(f"{line} ".startswith(f"  --{option} ") for line in lines)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--jobs cifar100", "jobs must be one of mnist, cifar10, got 'cifar100'"),
        ("--jobs mnist,mnist", "jobs names mnist twice"),
        ("--sparsities 1", "sparsities must be in [0, 1), got 1.0"),
        ("--sparsities=", "sparsities must not be empty"),
        ("--parts kernel", "parts must be one of rounds, kernels, evaluation, got 'kernel'"),
        ("--turns 0", "turns must be at least 1, got 0"),
        ("--rounds 0", "rounds must be at least 1, got 0"),
        ("--workers -1", "workers must be at least 0, got -1"),
        ("--jobs mnist --clients 2 --out x --markdown x", "out and markdown must be two files, got x twice"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(bench: Call, tmp_path: Path, line: str, message: str) -> None:
    outcome = bench(f"cpu {line}")
    assert outcome.code == 2
    assert outcome.err.startswith(f"feddst: {message}")
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
