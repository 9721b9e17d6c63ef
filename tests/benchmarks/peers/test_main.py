"""`python -m benchmarks.peers` from the outside."""

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

SMALL = "peers --clients 2 --epochs 1 --rounds 1 --turns 1 --workers 1"


@pytest.fixture
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stands in for an interpreter that has Flower, and does a job in no time."""
    path = tmp_path_factory.mktemp("environment") / "python"
    path.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "if sys.argv[1] == '-c':\n"
        "    print(json.dumps(dict.fromkeys(sys.argv[3:], '1.2.3')))\n"
        "else:\n"
        "    open(sys.argv[-1], 'w').write(json.dumps({'seconds': [86400.0], 'accuracy': 0.75}))\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_bench_prints_a_table_and_writes_a_record(bench: Call, tmp_path: Path, python: Path) -> None:
    outcome = bench(f"{SMALL} --flower {python} --out mine/peers.json")
    assert outcome.code == 0
    told = [line.partition(":")[0] for line in outcome.err.splitlines() if not line.startswith("feddst: warning")]
    names = ("feddst, S = 0.8", "PyTorch processes", "Flower simulation", "Flower simulation, tuned")
    assert told == [*(f"turn 1 of 1, {name}" for name in names), "record"]
    lines = outcome.out.splitlines()
    rows = (*names[:2], "Flower simulation 1.2.3 ", "Flower simulation 1.2.3, tuned")
    for name in (*rows, "not measured: pfl-research, for lack of --pfl", "not measured: FedLab, for lack of --fedlab"):
        assert any(line.startswith(name) for line in lines), name
    text = (tmp_path / "mine/peers.json").read_text()
    record = json.loads(text)
    assert record["command"] == f"python -m benchmarks.{SMALL} --flower PYTHON"
    assert str(python.parent) not in text
    assert [runner["name"] for runner in record["runners"]] == list(names)
    assert record["runners"][2]["versions"] == {"flwr": "1.2.3", "ray": "1.2.3", "torch": "1.2.3"}
    assert record["runners"][2]["turns"] == [[86400.0]]
    assert record["runners"][2]["ratio"] > 100
    assert record["not_measured"] == ["pfl-research", "FedLab"]


def test_a_peer_that_fails_is_said_to(bench: Call, tmp_path: Path, python: Path) -> None:
    python.write_text(python.read_text().replace("open(sys.argv[-1]", "sys.exit('it broke'); open(sys.argv[-1]"))
    outcome = bench(f"{SMALL} --flower {python}")
    assert outcome.code == 1
    assert "failed: Flower simulation: it ended with code 1: it broke" in outcome.out.splitlines()
    record = json.loads((tmp_path / "runs/bench-peers.json").read_text())
    assert [runner["failed"] for runner in record["runners"]] == [False, False, True, True]


def test_a_record_is_not_overwritten(bench: Call, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("years of work")
    outcome = bench(f"{SMALL} --out mine")
    assert (outcome.code, outcome.out, outcome.err) == (2, "", "feddst: mine exists already\n")
    assert (tmp_path / "mine").read_text() == "years of work"


def test_help(bench: Call) -> None:
    lines = bench("peers --help").out.splitlines()
    for option in ("flower", "pfl", "fedlab", "levels", "rounds", "turns", "clients", "epochs", "workers", "out"):
        assert any(line.startswith(f"  --{option} ") for line in lines), option


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--flower /no/such",
            "flower must be a Python interpreter with flwr, ray, torch, got '/no/such': No such file or directory",
        ),
        ("--pfl /", "pfl must be a Python interpreter with pfl, torch, got '/': Permission denied"),
        (
            "--fedlab /no/such --out new/x.json",
            "fedlab must be a Python interpreter with fedlab, torch, got '/no/such'",
        ),
        ("--levels=", "levels must not be empty"),
        ("--levels 0.8,0.8", "levels names 0.8 twice"),
        ("--levels 1", "levels must be in [0, 1), got 1.0"),
        ("--turns 0", "turns must be at least 1, got 0"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(bench: Call, tmp_path: Path, line: str, message: str) -> None:
    outcome = bench(f"peers {line}")
    assert outcome.code == 2
    assert outcome.err.startswith(f"feddst: {message}")
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
