"""One process at a time writes to a directory, whichever way it was asked to."""

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from torch import nn

from feddst.data import Dataset
from feddst.errors import CheckpointError
from feddst.runtime import RunConfig, run
from feddst.runtime.lock import LOCK, Lock, locked
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.studies import CompareConfig, compare
from feddst.studies.compare import Turn

Configure = Callable[..., RunConfig]

HOLD = """
import sys, time
from pathlib import Path
from feddst.runtime.lock import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 4))


class Intruder(Silent):
    """After the first round, tries to write where it was written to."""

    def __init__(self, *tries: Callable[[], object]) -> None:
        self._tries: Sequence[Callable[[], object]] = tries
        self.refused: list[str] = []

    def turn(self, turn: Turn) -> None:
        """Nothing to say."""

    def row(self, run: Run, row: Row) -> None:
        if row.round == 1 and not self.refused:
            for attempt in self._tries:
                with pytest.raises(CheckpointError) as caught:
                    attempt()
                self.refused.append(str(caught.value))


def test_the_holder_is_named_and_nothing_is_left_of_a_lock(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "run"
    with Lock(place):
        assert os.listdir(place) == [LOCK]
        with pytest.raises(CheckpointError, match=rf"run is being written to by process {os.getpid()} on .*: wait"):
            Lock(place)
        (place / "something").touch()
    assert os.listdir(place) == ["something"]
    with Lock(place), Lock(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()  # it was made for the lock alone
    with locked(None):
        pass


def test_a_lock_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match=rf"by process {holder.pid} on "):
            Lock(tmp_path)
        holder.send_signal(signal.SIGKILL)
    assert (tmp_path / LOCK).is_file()
    with Lock(tmp_path):
        assert (tmp_path / LOCK).read_text().startswith(f"{os.getpid()} on ")
    assert os.listdir(tmp_path) == []


def test_what_a_strangers_lock_says_is_not_repeated(tmp_path: Path) -> None:
    with Lock(tmp_path):
        (tmp_path / LOCK).write_text("\x1b[2J 7 on earth")
        with pytest.raises(CheckpointError, match="is being written to by another process"):
            Lock(tmp_path)


def test_a_file_system_without_locks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", flock)
    with Lock(tmp_path):
        assert (tmp_path / LOCK).is_file()
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} is on a file system without locks: see to it that no other process writes there"
    ]


def test_a_run_keeps_others_off_its_directory(tmp_path: Path, small_config: Configure, small_data: Dataset) -> None:
    config, out = small_config(rounds=2, local__epochs=1), tmp_path / "run"
    intruder = Intruder(lambda: run(config, model=network, data=small_data, out=out, resume=True))
    run(config, model=network, data=small_data, out=out, watcher=intruder)
    assert [re.sub(r"\d+ on .*:", "N:", text) for text in intruder.refused] == [
        f"{out} is being written to by process N: wait for its end, or stop it"
    ]
    assert [row.round for row in RunDirectory(out).rows()] == [1, 2]
    assert LOCK not in os.listdir(out)


def test_a_comparison_keeps_others_off_its_directory_and_its_runs(
    tmp_path: Path, small_config: Configure, small_data: Dataset
) -> None:
    base = small_config(rounds=2, local__epochs=1)
    config = CompareConfig(methods=("fedavg",), base=base)
    one = config.entries()[0].config(base, 0)
    intruder = Intruder(
        lambda: compare(config, out=tmp_path, model=network, data=small_data),
        lambda: run(one, model=network, data=small_data, out=tmp_path / "fedavg-seed0", resume=True),
    )
    assert compare(config, out=tmp_path, model=network, data=small_data, watcher=intruder).finished
    assert [re.sub(" is being .*", "", text) for text in intruder.refused] == [
        str(tmp_path),
        str(tmp_path / "fedavg-seed0"),
    ]
    assert not list(tmp_path.rglob(LOCK))
