"""MLflow's own client reads back what was logged: from a store of files, which is quick, and from the usual one."""

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import feddst
from feddst.errors import OptionError
from feddst.logs import MLflow, Several
from feddst.logs.mlflow_quiet import PATIENCE, mannered
from feddst.logs.mlflow_store import make_whole
from feddst.logs.scalars import GROUPS
from feddst.options import flatten, updated
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import SCORES, Row
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory

from .conftest import OPTIONS

Play = Callable[..., Any]
Series = dict[str, list[tuple[int, float]]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A store of files as a user names it, and a directory in which things may be left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/store")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return f"file:{tmp_path}/store"


class Logged:
    """MLflow's run for the run in a directory."""

    def __init__(self, store: str, directory: Path) -> None:
        with mannered():
            from mlflow import MlflowClient

            self._client = MlflowClient(store)
        self.id: str = json.loads((directory / "mlflow.json").read_text())["run_id"]
        self.run = self._client.get_run(self.id)

    @property
    def status(self) -> str:
        return str(self.run.info.status)

    @property
    def experiment(self) -> str:
        return str(self._client.get_experiment(self.run.info.experiment_id).name)

    def series(self) -> Series:
        return {
            name: sorted((point.step, point.value) for point in self._client.get_metric_history(self.id, name))
            for name in self.run.data.metrics
        }

    def artifacts(self, folder: Path) -> dict[str, bytes]:
        names = [file.path for file in self._client.list_artifacts(self.id)]
        return {name: Path(self._client.download_artifacts(self.id, name, str(folder))).read_bytes() for name in names}

    def delete(self) -> None:
        self._client.delete_run(self.id)


class Raises(Silent):
    """Raises an error after round 2."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def row(self, run: Run, row: Row) -> None:
        if row.round == 2:
            raise self._error


def shown(series: Series) -> Series:
    known = {name for names in GROUPS.values() for name in names} | {f"accuracy{kind}" for kind in SCORES}
    return {name: points for name, points in series.items() if name in known}


def test_a_finished_run_is_all_there(
    here: str,
    play: Play,
    told: Callable[..., Series],
    tmp_path: Path,
    unseal_run: Callable[[Path], RunDirectory],
) -> None:
    result = play(MLflow())
    logged = Logged(here, tmp_path / "run")
    assert logged.status == "FINISHED"
    assert logged.experiment == "feddst"
    assert logged.series() == shown(told())
    assert logged.run.data.params == {name: str(value) for name, value in flatten(result.config).items()}
    tags = logged.run.data.tags
    assert (tags["method"], tags["feddst.version"]) == ("feddst", feddst.__version__)
    assert logged.run.info.run_name == "run"
    run = unseal_run(tmp_path / "run")
    files = {path.name: path.read_bytes() for path in (run.config, run.summary)}
    (tmp_path / "back").mkdir()
    assert logged.artifacts(tmp_path / "back") == files


def test_a_run_that_goes_on_does_so_in_the_same_run(
    here: str, play: Play, told: Callable[..., Series], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt), Several(MLflow(), Raises(KeyboardInterrupt())) as watcher:
        play(watcher, checkpoint_every=3)
    stopped = Logged(here, tmp_path / "run")
    assert stopped.status == "KILLED"
    assert [step for step, _ in stopped.series()["seconds"]] == [1, 2]
    play(MLflow(), checkpoint_every=3, rounds=6, resume=True)  # from the beginning: there was no checkpoint
    logged = Logged(here, tmp_path / "run")
    assert (logged.id, logged.status) == (stopped.id, "FINISHED")
    found, expected = logged.series(), shown(told())
    assert [step for step, _ in found.pop("seconds")] == [step for step, _ in expected.pop("seconds")]
    assert found == expected  # rounds 1 and 2 were made twice, with the same numbers, and logged once
    assert logged.run.data.params["rounds"] == "4"
    assert logged.run.data.tags["changed.rounds"] == "6"


def test_a_run_that_fails_has_failed(here: str, play: Play, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Several(MLflow(experiment="mine"), Raises(RuntimeError("broken"))) as watcher:
        play(watcher)
    logged = Logged(here, tmp_path / "run")
    assert (logged.status, logged.experiment) == ("FAILED", "mine")


def test_a_run_that_mlflow_has_lost_is_begun_anew(
    here: str, play: Play, told: Callable[..., Series], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    play(MLflow(), rounds=2)
    first = Logged(here, tmp_path / "run")
    first.delete()
    play(MLflow(), rounds=4, resume=True)
    second = Logged(here, tmp_path / "run")
    assert first.id != second.id
    assert second.series() == shown(told())
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.endswith("run/mlflow.json names is not in MLflow's store: a new one was begun")


def test_a_run_without_a_directory_is_logged_too(here: str, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    play(MLflow(), None)
    client = MlflowClient(here)
    experiment = client.get_experiment_by_name("theirs")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("feddst, seed 0", "FINISHED")


def test_without_a_word_the_store_is_mlflows_own(
    play: Play, told: Callable[..., Series], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    log = MLflow()
    assert log.place(tmp_path) == f"sqlite:///{tmp_path}/mlflow.db, experiment feddst"
    play(log)
    logged = Logged(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "run")
    assert (logged.status, logged.series()) == ("FINISHED", shown(told()))


def test_a_store_that_breaks_is_one_warning_and_the_same_run(
    here: str, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from mlflow import MlflowClient

    play(None, "without")
    log = MLflow()
    log.check()

    def refuse(*given: object, **named: object) -> None:
        raise ConnectionError("the server is gone")

    class Breaks(Silent):
        def row(self, run: Run, row: Row) -> None:
            monkeypatch.setattr(MlflowClient, "log_batch", refuse)

    monkeypatch.setattr(MLflow, "every", 0.0)
    assert play(Several(Breaks(), log), "with").finished
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning == "the mlflow log of feddst, seed 0 cannot be written: the server is gone; the run goes on"
    for file in ("checkpoint.safetensors", "config.toml"):
        assert (tmp_path / "with" / file).read_bytes() == (tmp_path / "without" / file).read_bytes()


def test_a_store_that_cannot_be_used_is_known_before_any_work() -> None:
    with pytest.raises(OptionError, match=r"MLflow's store cannot be used: .*'nonsense"):
        MLflow("nonsense://there").check()


def test_a_store_whose_making_is_stopped_leaves_nothing_and_one_that_is_made_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"

    def stopped(uri: str) -> None:
        Path(uri.removeprefix("sqlite:///")).write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_whole(f"sqlite:///{path}", stopped)
    assert list(tmp_path.iterdir()) == []
    make_whole(f"sqlite:///{path}", lambda uri: Path(uri.removeprefix("sqlite:///")).write_bytes(b"whole"))
    make_whole(f"sqlite:///{path}", stopped)  # it is there: nothing to do
    make_whole("file:elsewhere", stopped)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"mlflow.db": b"whole"}


def test_a_half_made_store_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        base.execute("CREATE TABLE experiments (name TEXT)")
        base.execute("INSERT INTO alembic_version VALUES ('451aebb31d03')")
        base.commit()
    with pytest.raises(OptionError) as error:
        MLflow(f"sqlite:///{path}").check()
    message = str(error.value)
    assert message.startswith("MLflow's store cannot be used: ")
    assert message.endswith(f"; if {path} is half-made or of another MLflow, move it away, and a new one is made")
    assert "[SQL" not in message
    assert len(message) < 300 + len(str(path))


def test_missing_packages_are_named_with_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feddst.logs.mlflow.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'feddst\[mlflow\]'"):
        MLflow().check()


def test_a_dead_server_is_not_waited_for_longer_than_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    retries, timeout = PATIENCE
    monkeypatch.setenv(retries, "9")
    monkeypatch.delenv(timeout, raising=False)
    with mannered():
        assert (os.environ[retries], os.environ[timeout]) == ("9", PATIENCE[timeout])
    assert os.environ[retries] == "9"
    assert timeout not in os.environ


def test_a_place_is_said_without_its_password(here: str, tmp_path: Path) -> None:
    from feddst.logs.mlflow import _without_password

    assert _without_password("https://me:secret@host:5000/x") == "https://host:5000/x"
    assert MLflow(experiment="mine").place(tmp_path) == f"{here}, experiment mine"


def test_other_metrics_stand_under_their_own_names(here: str, tmp_path: Path) -> None:
    inputs = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
    data = (inputs[:40], inputs[:40, :1]), (inputs[40:], inputs[40:, :1])
    changes = {"data.partition": "iid", "local.objective": "squared-error", "method": "fedavg"}
    config = updated(RunConfig(), {**OPTIONS, **changes})
    rows = feddst.run(config, model=lambda: nn.Linear(6, 1), data=data, out=tmp_path / "run", watcher=MLflow()).rows
    series = Logged(here, tmp_path / "run").series()
    assert series["rmse"] == [(row.round, row.score) for row in rows if row.score is not None]
    assert series["mae_worst"] == [(row.round, row.others["mae_worst"]) for row in rows if row.others]
    assert not [name for name in series if "accuracy" in name]
