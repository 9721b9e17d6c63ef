"""`python -m benchmarks.scale`, called as a user would."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

SMALL = "scale --networks mnist-cnn --codecs q4 --clients 2,3 --rounds 1"


def test_a_bench_prints_tables_and_writes_a_record(bench: Call, tmp_path: Path) -> None:
    outcome = bench(f"{SMALL} --out mine/scale.json --markdown mine/scale.md")
    assert outcome.code == 0
    told = [line.partition(":")[0] for line in outcome.err.splitlines()]
    kinds = [f"mnist-cnn, q4, {kind}, {clients} clients" for kind in ("ordinary", "readjusting") for clients in (2, 3)]
    assert told == [*kinds, "record", "tables"]
    for title in ("Rounds", "One update", "10,000 clients in a round", "A tree"):
        assert title in outcome.out.splitlines()
        assert f"## {title}" in (tmp_path / "mine/scale.md").read_text()
    record = json.loads((tmp_path / "mine/scale.json").read_text())
    assert record["command"] == f"python -m benchmarks.{SMALL}"
    assert [(row["kind"], row["clients"]) for row in record["rows"]] == [
        ("ordinary", 2),
        ("ordinary", 3),
        ("readjusting", 2),
        ("readjusting", 3),
    ]
    assert [row["up"] for row in record["rows"][:2]] == [2 * 28_064, 3 * 28_064]
    assert all(len(row["rounds"]) == 1 and row["peak"] > 0 for row in record["rows"])
    assert [row["kind"] for row in record["updates"]] == ["ordinary", "readjusting"]
    assert record["outlook"]["clients"] == 10_000
    assert "flwr" in record["machine"]


def test_a_record_is_not_overwritten(bench: Call, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("years of work")
    outcome = bench(f"{SMALL} --out mine")
    assert (outcome.code, outcome.out, outcome.err) == (2, "", "feddst: mine exists already\n")
    assert (tmp_path / "mine").read_text() == "years of work"


def test_help(bench: Call) -> None:
    lines = bench("scale --help").out.splitlines()
    for option in ("networks", "codecs", "clients", "level", "rounds", "seed", "out", "markdown"):
        assert any(line.startswith(f"  --{option} ") for line in lines), option


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--clients=", "clients must not be empty"),
        ("--clients 0", "clients must be at least 1, got 0"),
        ("--clients 5,5", "clients names 5 twice"),
        ("--codecs q3", "codecs must be "),
        ("--codecs sign", "codecs must be "),
        ("--level 0", "level must be in (0, 1), got 0.0"),
        ("--rounds 0", "rounds must be at least 1, got 0"),
        ("--out x --markdown x", "out and markdown must be two files, got x twice"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(bench: Call, tmp_path: Path, line: str, message: str) -> None:
    outcome = bench(f"scale {line}")
    assert outcome.code == 2
    assert outcome.err.startswith(f"feddst: {message}")
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
