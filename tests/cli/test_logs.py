"""`--log`, as a user gives it."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from feddst.cli.progress import Reporter
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run

Call = Callable[..., Any]


def steps(folder: Path) -> list[int]:
    return [event.step for event in EventAccumulator(str(folder)).Reload().Scalars("accuracy/accuracy")]


def test_a_run_says_where_it_is_logged_and_may_be_resumed_with_or_without(
    feddst: Call, tmp_path: Path, small: str
) -> None:
    outcome = feddst(f"run --rounds 2 {small} --out here --log tensorboard")
    assert outcome.code == 0
    assert "tensorboard: tensorboard --logdir here" in outcome.err.splitlines()
    assert steps(tmp_path / "here/tensorboard") == [1, 2]
    assert feddst("run --resume --out here --rounds 3").code == 0
    assert steps(tmp_path / "here/tensorboard") == [1, 2]
    assert feddst("run --resume --out here --rounds 4 --log tensorboard").code == 0
    assert steps(tmp_path / "here/tensorboard") == [1, 2, 3, 4]


def test_every_run_of_a_comparison_is_logged_in_its_own_directory(feddst: Call, tmp_path: Path, small: str) -> None:
    outcome = feddst(f"compare --methods fedavgm,feddst --rounds 1 {small} --out both --log tensorboard")
    assert outcome.code == 0
    assert outcome.err.startswith("tensorboard: tensorboard --logdir both\n2 runs on mnist")
    for name in ("fedavgm-seed0", "feddst-seed0"):
        assert steps(tmp_path / "both" / name / "tensorboard") == [1]


def test_both_logs_at_once(feddst: Call, tmp_path: Path, small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/store")
    outcome = feddst(f"run --rounds 1 {small} --out here --log tensorboard,mlflow")
    assert outcome.code == 0
    assert outcome.err.splitlines()[:3] == [
        "mlflow: preparing its store, which takes some seconds",
        "tensorboard: tensorboard --logdir here",
        f"mlflow: file:{tmp_path}/store, experiment feddst",
    ]
    assert steps(tmp_path / "here/tensorboard") == [1]
    assert (tmp_path / "here/mlflow.json").is_file()


@pytest.mark.parametrize("times", [1, 2])
def test_a_run_that_the_user_stops_is_killed_and_goes_on_with_the_same_logs(
    feddst: Call, tmp_path: Path, small: str, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    usual = Reporter.row

    def row(self: Reporter, run: Run, row: Row) -> None:
        usual(self, run, row)
        if row.round == 2:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Reporter, "row", row)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/store")
    outcome = feddst(f"run --rounds 9 {small} --out here --log mlflow")
    assert outcome.code == 130
    assert outcome.err.splitlines()[-1].endswith(" run --resume --out here --log mlflow")
    from mlflow import MlflowClient

    run_id = json.loads((tmp_path / "here/mlflow.json").read_text())["run_id"]
    assert MlflowClient(f"file:{tmp_path}/store").get_run(run_id).info.status == "KILLED"


def test_a_run_under_flower_is_logged_too(feddst: Call, tmp_path: Path, small: str) -> None:
    outcome = feddst(f"flower simulate --rounds 1 {small} --out here --log tensorboard")
    assert outcome.code == 0
    assert steps(tmp_path / "here/tensorboard") == [1]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("tensorbord", "log must be one of mlflow, tensorboard, got 'tensorbord'; did you mean 'tensorboard'?"),
        ("mlflow,mlflow", "log names mlflow twice"),
        ("", "log must not be empty"),
    ],
)
def test_what_cannot_be_logged_is_refused(feddst: Call, tmp_path: Path, small: str, given: str, complaint: str) -> None:
    outcome = feddst(*f"run --rounds 1 {small} --out here".split(), f"--log={given}")
    assert (outcome.code, outcome.err) == (2, f"feddst: {complaint}\n")
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_one_line_before_any_work(
    feddst: Call, tmp_path: Path, small: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(f"feddst.logs.{name}.find_spec", lambda package: None)
    outcome = feddst(f"run --rounds 1 {small} --out here --log {name}")
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1
    assert f"pip install 'feddst[{name}]'" in outcome.err
    assert not (tmp_path / "here").exists()
