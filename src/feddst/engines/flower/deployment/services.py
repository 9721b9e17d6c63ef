"""Long-running processes and what they start, with their output in a file, ended without leaving anything behind."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from feddst.engines.flower.deployment.process_table import descendants
from feddst.errors import FlowerError

GRACE = 5.0
"""Seconds between asking a process to end and ending it."""
_TAIL = 20
_POLL = 0.05


class Service:
    """One process and those that it starts. `name` is for messages."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_begins = 0
        self._family: list[int] = []

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._started().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, again after it ended. The log goes on in the same file."""
        if self.running:
            raise FlowerError(f"{self.name} is running already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_begins = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for the parent alone
            )

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready`; raise with the end of the log if the process ends first or the time is up."""
        deadline = time.monotonic() + seconds
        while not ready():
            code = self._started().poll()
            if code is not None:
                raise FlowerError(f"{self.name} ended with code {code}:\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise FlowerError(f"{self.name} was not ready after {seconds:g} s:\n{self.last_lines()}")
            time.sleep(_POLL)

    def wait(self, seconds: float) -> int:
        """Wait for it to end by itself; its exit code."""
        try:
            return self._started().wait(seconds)
        except subprocess.TimeoutExpired:
            raise FlowerError(f"{self.name} was still running after {seconds:g} s") from None

    def output(self) -> str:
        """What it has written since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self._log_begins)
            return log.read().decode(errors="replace")

    def last_lines(self) -> str:
        return "\n".join(self.output().splitlines()[-_TAIL:])

    def kill(self) -> None:
        """SIGKILL to it and all that it started, as if the machine had lost its power."""
        self._know_family()
        for pid in [self.pid, *self._family] if self.running else self._family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._started().wait()

    def ask_to_end(self) -> None:
        """SIGTERM: it has seen to it that what it starts ends too, unless it is too late for that."""
        if self.running:
            self._know_family()
            self._started().terminate()

    def child(self, program: str) -> int:
        """The process id of what it started by this name."""
        for process in descendants(self.pid):
            if any(Path(word).name == program for word in process.words[:2]):
                return process.pid
        raise FlowerError(f"{self.name} is not running {program}")

    def _know_family(self) -> None:
        """Remember what it started, some of it in sessions of their own, for when it is gone and nobody can tell."""
        if self.running:
            self._family = [process.pid for process in descendants(self.pid)]

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise FlowerError(f"{self.name} was never started")
        return self._process


def stop(services: Iterable[Service]) -> None:
    """End all of these and what they started: asked at once, killed `GRACE` seconds later, or at once on Ctrl-C."""
    begun = [service for service in services if service._process is not None]
    try:
        for service in begun:
            service.ask_to_end()
        deadline = time.monotonic() + GRACE
        while any(service.running for service in begun) and time.monotonic() < deadline:
            time.sleep(_POLL)
    finally:
        for service in begun:
            service.kill()
