"""Long-running processes and what they start, with their output in a file, ended without leaving anything behind."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from feddst.errors import FlowerError
from feddst.flower.deployment import family
from feddst.flower.deployment.private import make_private, open_private

GRACE = 5.0
"""Seconds between asking a process to end and ending it."""
_GUARD = [sys.executable, "-E", "-S", family.__file__]
_TAIL = 20
_POLL = 0.05


class Service:
    """A process and its descendants, which end when our own process does, however it ends. `name` is for messages."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_begins = 0

    @property
    def pid(self) -> int:
        """The id of the process that guards it."""
        return self._started().pid

    @property
    def begun(self) -> bool:
        """Whether it was ever started."""
        return self._process is not None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, or start it again after it ended. The log goes on in the same file."""
        if self.running:
            raise FlowerError(f"{self.name} is running already")
        if self.begun:
            self.kill()  # it has ended: this only frees its resources
        make_private(self.log.parent)
        with open_private(self.log) as log:
            self._log_begins = log.tell()
            self._process = subprocess.Popen(
                [*_GUARD, *self._command],
                stdin=subprocess.PIPE,  # its other end closes with this process, if not before
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                bufsize=0,
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
        process = self._started()
        assert process.stdin is not None
        process.stdin.close()
        process.wait()

    def ask_to_end(self) -> None:
        """SIGTERM."""
        if self.running:
            self._started().terminate()

    def child(self, program: str) -> int:
        """The process id of its descendant of this name."""
        for process in family.descendants(self.pid):
            if any(Path(word).name == program for word in process.words[:2]):
                return process.pid
        raise FlowerError(f"{self.name} is not running {program}")

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise FlowerError(f"{self.name} was never started")
        return self._process


def stop(services: Iterable[Service], hurry: Callable[[], bool] = lambda: False) -> None:
    """End services and their descendants: SIGTERM at once, SIGKILL `GRACE` seconds later, or as soon as `hurry`."""
    begun = [service for service in services if service.begun]
    try:
        for service in begun:
            service.ask_to_end()
        deadline = time.monotonic() + GRACE
        while any(service.running for service in begun) and time.monotonic() < deadline and not hurry():
            time.sleep(_POLL)
    finally:
        for service in begun:
            service.kill()
