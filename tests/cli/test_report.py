"""`feddst report` from the outside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def compared(feddst: Call, small: str) -> str:
    """A comparison of two methods, of two rounds each."""
    assert feddst(f"compare --methods fedavgm,feddst --rounds 2 --readjust.every 1 {small} --out both").code == 0
    return "both"


def test_a_comparison_becomes_one_page_and_again(feddst: Call, tmp_path: Path, compared: str) -> None:
    first = feddst(f"report {compared}")
    assert (first.code, first.out, first.err) == (0, "both/report.html\n", "")
    page = (tmp_path / "both/report.html").read_text()
    assert "feddst compare --methods fedavgm,feddst" in page
    assert '"label":"feddst"' in page
    second = feddst(f"report {compared}")
    assert (second.out, second.err) == ("both/report.html\n", "it replaces an earlier report\n")


def test_several_runs_make_a_page_here(feddst: Call, tmp_path: Path, compared: str) -> None:
    assert feddst("report both/feddst-seed0 both/fedavgm-seed0").out == "report.html\n"
    assert feddst("report both/feddst-seed0 both/fedavgm-seed0 --out x/y.html").out == "x/y.html\n"
    assert (tmp_path / "x/y.html").is_file()


def test_a_directory_with_a_report_is_still_a_comparison_to_go_on_with(feddst: Call, compared: str, small: str) -> None:
    assert feddst(f"report {compared}").code == 0
    words = f"compare --methods fedavgm,feddst --rounds 3 --readjust.every 1 {small} --out both"
    assert feddst(words).code == 0


def test_figures_go_into_a_directory(feddst: Call, compared: str) -> None:
    outcome = feddst(f"report {compared} --format svg")
    assert outcome.code == 0
    assert "both/report-figures/accuracy-upload.svg" in outcome.out.splitlines()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("report", "report needs at least one RUN: a run's directory, a comparison's or a reproduction's"),
        ("report nowhere", "RUN must be a run's directory, a directory of runs, or one with a record.json"),
        ("report . --format gif", "format must be one of html, png, svg, pdf, got 'gif'"),
        ("report . --wide", "unknown option --wide"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(feddst: Call, tmp_path: Path, line: str, message: str) -> None:
    outcome = feddst(line)
    assert outcome.code == 2
    assert outcome.err.startswith("feddst: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_somebody_else_s_file_is_left_alone(feddst: Call, tmp_path: Path, compared: str) -> None:
    (tmp_path / "mine.html").write_text("mine")
    outcome = feddst(f"report {compared} --out mine.html")
    assert outcome.code == 2
    assert outcome.err == "feddst: out: mine.html exists already and is not a report of feddst: choose another name\n"
    assert (tmp_path / "mine.html").read_text() == "mine"
