import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from feddst.errors import FlowerError
from feddst.flower.deployment.family import descendants
from feddst.flower.deployment.services import Service, stop

AllGone = Callable[[Sequence[int]], bool]

FAMILY = """
import subprocess, sys, time
child = "import time; print('child', flush=True); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
{}
print("ready", flush=True)
time.sleep(60)
"""


def service(folder: Path, source: str) -> Service:
    return Service("a test", [sys.executable, "-c", source], os.environ, folder / "log")


def begin_family(folder: Path, more: str = "") -> tuple[Service, list[int]]:
    parent = service(folder, FAMILY.format(more))
    parent.start()
    parent.wait_until(lambda: {"ready", "child"} <= set(parent.output().split()), 10)
    pids = [parent.pid, *(process.pid for process in descendants(parent.pid))]
    assert len(pids) == 3  # the first guards the others
    return parent, pids


@pytest.mark.parametrize("more", ["", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_stopping_ends_children_in_other_sessions_and_processes_that_will_not_listen(
    tmp_path: Path, more: str, monkeypatch: pytest.MonkeyPatch, all_gone: AllGone
) -> None:
    monkeypatch.setattr("feddst.flower.deployment.services.GRACE", 0.5)
    parent, pids = begin_family(tmp_path, more)
    stop([parent])
    assert all_gone(pids)
    stop([parent])


def test_a_kill_takes_the_children_too_and_it_can_be_started_again(tmp_path: Path, all_gone: AllGone) -> None:
    parent, pids = begin_family(tmp_path)
    parent.kill()
    assert all_gone(pids)
    parent.start()
    assert parent.running
    assert "ready" not in parent.output()  # that is what it wrote the time before
    stop([parent])


def test_a_process_that_dies_at_start_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    dying = service(tmp_path, "import sys; print('why it died'); sys.exit(7)")
    dying.start()
    with pytest.raises(FlowerError, match=r"a test ended with code 7:\nwhy it died"):
        dying.wait_until(lambda: False, 10)
    stop([dying])


def test_a_process_that_does_not_get_ready_is_an_error(tmp_path: Path) -> None:
    slow = service(tmp_path, "import time; time.sleep(60)")
    slow.start()
    try:
        with pytest.raises(FlowerError, match=r"a test was not ready after 0\.1 s"):
            slow.wait_until(lambda: False, 0.1)
    finally:
        stop([slow])


SERVING = """
import os, signal, sys
from pathlib import Path
from feddst.flower.deployment.services import Service
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever began the tests may ignore it
one = Service("a test", [sys.executable, "-c", sys.argv[2]], os.environ, Path(sys.argv[1]) / "log")
one.start()
one.wait_until(lambda: {"ready", "child"} <= set(one.output().split()), 10)
print("up", flush=True)
one.wait(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_service_and_its_children_end_with_whoever_started_it(
    tmp_path: Path, number: signal.Signals, all_gone: AllGone
) -> None:
    words = [sys.executable, "-c", SERVING, str(tmp_path), FAMILY.format("")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        pids = [process.pid for process in descendants(starter.pid)]
        assert len(pids) == 3
        starter.send_signal(number)
    assert all_gone(pids)


def test_what_a_process_leaves_behind_ends_with_it(tmp_path: Path, all_gone: AllGone) -> None:
    left = "import time; print('child', flush=True); time.sleep(60)"
    source = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {left!r}], start_new_session=True)"
    between = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {source!r}]); print('ready', flush=True)"
    parent = service(tmp_path, between + "; import time; time.sleep(60)")
    parent.start()
    parent.wait_until(lambda: {"ready", "child"} <= set(parent.output().split()), 10)
    pids = [process.pid for process in descendants(parent.pid)]
    assert len(pids) == 2  # the orphan is still of this family
    stop([parent])
    assert all_gone(pids)


def test_whoever_hurries_does_not_wait_for_those_that_will_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_gone: AllGone
) -> None:
    monkeypatch.setattr("feddst.flower.deployment.services.GRACE", 1e9)
    parent, pids = begin_family(tmp_path, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    stop([parent], hurry=lambda: True)
    assert all_gone(pids)
