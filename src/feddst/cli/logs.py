"""`--log`: what a command logs for TensorBoard or MLflow, beside its own files."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from feddst.cli.arguments import Arguments
from feddst.cli.screen import say
from feddst.logs import LOGS, Log
from feddst.options import as_words, check_list, option


@dataclass(frozen=True)
class LogArguments:
    """Which logs get every round."""

    log: tuple[str, ...] = option(
        (),
        "log every round for TensorBoard, in the run's directory, or in MLflow, at MLFLOW_TRACKING_URI or else in "
        "mlflow.db here; `tensorboard,mlflow` does both. A resumed run may change it",
        among=LOGS,
    )


def asked_logs(given: Arguments) -> list[Log]:
    """The logs that the user asks for, each checked to work here."""
    if "log" not in given.values:
        return []
    check_list("log", given.values["log"])
    logs: list[Log] = [LOGS[name]() for name in given.values["log"]]
    for log in logs:
        log.tell = partial(_say_of, log)
        log.check()
    return logs


def say_places(logs: Sequence[Log], out: Path) -> None:
    """Say where each log is."""
    for log in logs:
        _say_of(log, log.place(out))


def _say_of(log: Log, line: str) -> None:
    say(f"{log.name}: {line}")


def log_words(given: Arguments) -> list[str]:
    """The option as it was typed."""
    return as_words({"log": given.values["log"]}) if given.values.get("log") else []
