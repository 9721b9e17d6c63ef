"""docs/extend-log.md: its log has every round once, also of runs that are resumed, and ends none."""

import csv
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import feddst
from feddst.cli.main import main
from feddst.logs import LOGS, Several
from feddst.plugins import load_plugins

SMALL = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1 --eval_every 1"


def lines_in(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("tiny_mnist")
def test_the_page_runs_as_it_stands(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-log")
    page.install(workshop)
    page.run()
    printed = capsys.readouterr().out
    assert printed.startswith("round,accuracy,loss,density,upload_bytes\n1,")
    rows = [json.loads(line) for line in (workshop / "runs/mine/metrics.jsonl").read_text().splitlines()]
    assert [
        {name: float(value) for name, value in line.items()} for line in lines_in(workshop / "runs/mine/rounds.csv")
    ] == [{name: row[name] for name in ("round", "accuracy", "loss", "density", "upload_bytes")} for row in rows]


@pytest.mark.usefixtures("tiny_mnist")
def test_its_commands_log_each_round_once(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-log")
    page.install(workshop)
    load_plugins()
    for call in page.commands():
        assert main([*call, *([] if "--resume" in call else SMALL.split())]) == 0
        assert f"sheet: {call[call.index('--out') + 1]}/rounds.csv\n" in capsys.readouterr().err
    assert [line["round"] for line in lines_in(workshop / "runs/typed/rounds.csv")] == list("12345")
    assert [line["round"] for line in lines_in(workshop / "runs/flower/rounds.csv")] == list("123")
    assert (
        main(
            ["compare", "--methods", "feddst,fedavg", "--rounds", "1", "--log", "sheet", "--out", "two", *SMALL.split()]
        )
        == 0
    )
    assert len([line for path in workshop.glob("two/**/rounds.csv") for line in lines_in(path)]) == 2


@pytest.mark.usefixtures("tiny_mnist")
def test_a_round_that_is_made_again_is_not_logged_twice(code_page: Callable[[str], Any], workshop: Path) -> None:
    """A checkpoint after round 1, and a log that had got to round 2: as a run leaves it that was killed there."""
    code_page("extend-log").install(workshop)
    load_plugins()
    small: dict[str, Any] = {"data": {"clients": 4, "images_per_class": 5}, "cohort": {"size": 2}}

    def play(rounds: int, *, resume: bool) -> list[dict[str, str]]:
        with LOGS["sheet"]() as log:
            config = feddst.configure(rounds=rounds, local={"epochs": 1}, **small)
            feddst.run(config, out="killed", resume=resume, watcher=log)
        return lines_in(workshop / "killed/rounds.csv")

    play(1, resume=False)
    with (workshop / "killed/rounds.csv").open("a") as file:
        file.write("2,0.5,1.0,0.2,7\r\n")
    lines = play(3, resume=True)
    assert [line["round"] for line in lines] == ["1", "2", "3"]
    assert lines[1]["upload_bytes"] == "7"


@pytest.mark.usefixtures("tiny_mnist")
def test_a_run_goes_on_where_it_cannot_be_written(
    code_page: Callable[[str], Any], workshop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code_page("extend-log").install(workshop)
    load_plugins()
    config = feddst.configure(
        rounds=1, data={"clients": 4, "images_per_class": 5}, cohort={"size": 2}, local={"epochs": 1}
    )
    with caplog.at_level(logging.WARNING), Several(LOGS["sheet"]()) as log:
        assert feddst.run(config, watcher=log).finished
    [said] = [record.getMessage() for record in caplog.records]
    assert said == (
        "the sheet log of feddst, seed 0 cannot be written: a run without `out` has no place for it; the run goes on"
    )
