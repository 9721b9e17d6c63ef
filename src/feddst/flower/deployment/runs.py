"""Runs of Flower apps: begun, followed line by line, and how they ended."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from feddst.errors import FlowerError
from feddst.flower.config import Value
from feddst.flower.deployment.command_line import (
    CONNECTION,
    ask,
    environment,
    plain,
    program,
    write_values,
)
from feddst.flower.deployment.services import Service, stop

_POLL = 0.05


@dataclass(frozen=True)
class RunEnd:
    """How a run ended: `status` is completed, failed or stopped, and `details` says why if it failed."""

    run: str
    status: str
    details: str

    @property
    def completed(self) -> bool:
        return self.status == "completed"


def begin(home: Path, app: Path, config: Mapping[str, Value]) -> str:
    """Send an app directory to the SuperLink to be run; the run's id."""
    words = ["--run-config", str(write_values(home / "run-config.toml", config))] if config else []
    return str(ask(home, "run", str(app), *words)["run-id"])


def follow(home: Path, run: str, log: Path, on_line: Callable[[str], None], superlink: Service, seconds: float) -> None:
    """Pass on what the ServerApp writes, line by line, until the run has ended; raise if it does not in time."""
    deadline = time.monotonic() + seconds
    stream = Service("flwr log", [program("flwr"), "log", run, CONNECTION, "--stream"], environment(home), log)
    stream.start()
    passed = 0
    try:
        while True:
            running = stream.running  # asked before reading: what an ended process wrote is all there
            lines = stream.output().splitlines(keepends=True)
            whole = len(lines) - (running and bool(lines) and not lines[-1].endswith("\n"))
            for line in lines[passed:whole]:
                on_line(plain(line).rstrip("\n"))
            passed = whole
            if not superlink.running:
                raise FlowerError(f"the SuperLink ended during run {run}")
            if not running:
                return
            if time.monotonic() > deadline:
                raise FlowerError(f"run {run} had not ended after {seconds:g} s, and was stopped")
            time.sleep(_POLL)
    finally:
        stop([stream])


def end_of(home: Path, run: str) -> RunEnd:
    """How a run ended. Raises if it has not."""
    (row,) = ask(home, "list", "--run-id", run)["runs"]
    status, _, how = str(row["status"]).partition(":")
    if status != "finished":
        raise FlowerError(f"run {run} is {status}, but nothing more of it can be read")
    return RunEnd(run, how, "" if row["status-details"] == "N/A" else str(row["status-details"]))
