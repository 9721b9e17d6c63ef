import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feddst.cli.interruption import Interruption

SMALL = (
    "--data.dataset folder --data.root images --data.clients 4 --data.images_per_class 4 --cohort.size 2 "
    "--local.epochs 1 --engine.workers 1 --eval_every 20 --checkpoint_every 20"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a small set of images in it."""
    draws = np.random.default_rng(0)
    for split, count in (("train", 16), ("test", 2)):
        for label in "ab":
            place = tmp_path / "images" / split / label
            place.mkdir(parents=True)
            for i in range(count):
                pixels = draws.integers(0, 256, (14, 14), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{i}.png")
    return tmp_path


@contextmanager
def started(words: list[str], folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A program that runs in `folder` and does not outlive the test."""
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            yield program
        finally:
            program.kill()


def wait_for(path: Path, program: "subprocess.Popen[str]") -> None:
    while not (path.is_file() and path.stat().st_size):
        assert program.poll() is None, program.communicate()[1]
        time.sleep(0.02)


def test_ctrl_c_stops_after_the_round_and_says_how_to_go_on(folder: Path) -> None:
    feddst = [sys.executable, "-m", "feddst"]
    words = [*feddst, "run", "--rounds", "1000000", *SMALL.split(), "--out", "here"]
    with started(words, folder) as program:
        wait_for(folder / "here" / "metrics.jsonl", program)
        os.kill(program.pid, signal.SIGINT)
        _, err = program.communicate(timeout=60)
    lines = err.splitlines()
    assert program.returncode == 130
    assert "Traceback" not in err
    assert lines.count("finishing this round; press Ctrl-C again to stop at once") == 1
    stopped = len((folder / "here/metrics.jsonl").read_text().splitlines())
    assert lines[-2] == f"stopped after round {stopped}; go on with"
    command = [*shlex.split(lines[-1]), "--rounds", str(stopped + 2)]
    with started(command, folder) as again:
        out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert f"going on after round {stopped}" in err
    assert f"after {stopped + 2} rounds" in out


def test_the_first_signal_in_a_round_asks_and_the_second_stops() -> None:
    said: list[str] = []
    with Interruption() as interruption:
        interruption.announce = lambda: said.append("finishing")
        interruption.in_rounds = True
        signal.raise_signal(signal.SIGINT)
        assert interruption.asked
        assert said == ["finishing"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_outside_of_rounds_the_first_signal_stops() -> None:
    with Interruption() as interruption, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not interruption.asked


def test_the_handler_from_before_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_a_run_that_was_started_with_the_signal_ignored_heeds_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what a script starts with &
    try:
        with Interruption() as interruption:
            interruption.in_rounds = True
            signal.raise_signal(signal.SIGINT)
        assert interruption.asked
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
