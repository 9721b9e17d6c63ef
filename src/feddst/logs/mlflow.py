"""Runs in MLflow: where `MLFLOW_TRACKING_URI` points, else in MLflow's own local store."""

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import feddst
from feddst.core import register
from feddst.errors import OptionError
from feddst.logs.log import Ending, Log, warnings
from feddst.logs.mlflow_quiet import mannered
from feddst.logs.mlflow_store import make_whole, reason_of
from feddst.logs.scalars import ALWAYS, scalars
from feddst.options import flatten
from feddst.runtime import toml
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.storage import write_atomically

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as Entry

EXPERIMENT = "feddst"
REMEMBERED = "mlflow.json"
"""The file in a run's directory that says which of MLflow's runs it is."""

_STATUS: dict[Ending, str] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_METRICS, _PARAMS = 1000, 100
"""How many of them one request may hold."""


@register
class MLflow(Log):
    """Logs the config as parameters, the numbers of each round by step, and in the end the config and the summary.

    `tracking_uri` and `experiment` default to MLflow's own environment variables, and the experiment then to `feddst`.
    A resumed run continues the same run of MLflow's.
    """

    name = "mlflow"
    every = 1.0

    def __init__(self, tracking_uri: str = "", experiment: str = "") -> None:
        super().__init__()
        self._uri = tracking_uri
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "") or EXPERIMENT
        self._client: MlflowClient | None = None

    def check(self) -> None:
        if find_spec("mlflow") is None:
            raise OptionError("a log in MLflow needs the package: pip install 'feddst[mlflow]'")
        self._store()

    def place(self, out: Path) -> str:
        return f"{_without_password(self._store().tracking_uri)}, experiment {self._experiment}"

    def begin(self, run: Run) -> "Page":
        client = self._store()
        with mannered():
            entry = self._known(client, run)
            if entry is None:
                return self._begin(client, run)
            return _go_on(client, run, entry)

    def _store(self) -> "MlflowClient":
        """MLflow's client, once it is known that its store answers."""
        if self._client is None:
            self.tell("preparing its store, which takes some seconds")
            uri = self._uri
            try:
                with mannered():
                    from mlflow import get_tracking_uri
                with mannered():  # once more: the import itself makes MLflow talk
                    uri = uri or get_tracking_uri()
                    make_whole(uri, _opened)
                    self._client = _opened(uri)
            except ImportError as error:
                raise OptionError(f"MLflow's store lacks {error.name}: pip install 'feddst[mlflow]'") from None
            except Exception as error:
                raise OptionError(f"MLflow's store cannot be used: {reason_of(error, uri)}") from None
        return self._client

    def _known(self, client: "MlflowClient", run: Run) -> "Entry | None":
        """MLflow's run for a run that has been logged before."""
        from mlflow.exceptions import MlflowException

        path = _remembered(run)
        if path is None or not path.is_file():
            return None
        try:
            entry = client.get_run(json.loads(path.read_text())["run_id"])
        except (ValueError, TypeError, KeyError, MlflowException):
            entry = None
        if entry is None or entry.info.lifecycle_stage != "active":
            warnings.warning("the run that %s names is not in MLflow's store: a new one was begun", path)
            return None
        return entry

    def _begin(self, client: "MlflowClient", run: Run) -> "Page":
        known = client.get_experiment_by_name(self._experiment)
        experiment = known.experiment_id if known is not None else client.create_experiment(self._experiment)
        name = run.name if run.directory is None else run.directory.path.name
        tags = {"method": run.config.method, "feddst.version": feddst.__version__}
        entry = client.create_run(experiment, run_name=name, tags=tags)
        path = _remembered(run)
        if path is not None:
            write_atomically(path, (json.dumps({"run_id": entry.info.run_id}) + "\n").encode())
        _log_params(client, entry.info.run_id, _params(run))
        return Page(client, run, entry.info.run_id, 0)


@dataclass(frozen=True)
class Page:
    """A run of MLflow's."""

    client: "MlflowClient"
    run: Run
    run_id: str
    first: int

    def write(self, rows: Sequence[Row]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, row.round) for row in rows for name, value in scalars(row).items()]
        with mannered():
            for start in range(0, len(metrics), _METRICS):
                self.client.log_batch(self.run_id, metrics=metrics[start : start + _METRICS])

    def close(self, ending: Ending) -> None:
        with mannered():
            self.client.log_text(self.run_id, toml.dump(self.run.config, "feddst run"), "config.toml")
            if ending == "finished":
                summary = json.dumps(self.run.summary().as_dict(), indent=2) + "\n"
                self.client.log_text(self.run_id, summary, "summary.json")
            self.client.set_terminated(self.run_id, _STATUS[ending])


def _opened(uri: str) -> "MlflowClient":
    """A client, once its store has answered."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    client.search_experiments(max_results=1)
    return client


def _go_on(client: "MlflowClient", run: Run, entry: "Entry") -> Page:
    """MLflow's run, running again; options that have changed become tags, because parameters never change."""
    run_id = entry.info.run_id
    client.update_run(run_id, status="RUNNING")
    for name, value in _params(run).items():
        if name in entry.data.params and entry.data.params[name] != value:
            client.set_tag(run_id, f"changed.{name}", value)
    _log_params(client, run_id, {name: value for name, value in _params(run).items() if name not in entry.data.params})
    logged = client.get_metric_history(run_id, ALWAYS)
    return Page(client, run, run_id, max((metric.step + 1 for metric in logged), default=0))


def _params(run: Run) -> dict[str, str]:
    return {name: str(value) for name, value in flatten(run.config).items()}


def _log_params(client: "MlflowClient", run_id: str, params: dict[str, str]) -> None:
    from mlflow.entities import Param

    for some in _parts(params.items(), _PARAMS):
        client.log_batch(run_id, params=[Param(name, value) for name, value in some])


def _parts(items: Iterable[tuple[str, str]], size: int) -> list[list[tuple[str, str]]]:
    every = list(items)
    return [every[start : start + size] for start in range(0, len(every), size)]


def _remembered(run: Run) -> Path | None:
    return None if run.directory is None else run.directory.path / REMEMBERED


def _without_password(uri: str) -> str:
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else uri
