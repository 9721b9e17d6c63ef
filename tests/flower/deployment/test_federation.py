"""Whole federations on loopback, with TLS and node keys: a run's bits, the bytes on the line, and what is killed."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import feddst
from benchmarks.flower.proxy import CountingProxy
from feddst.errors import FlowerError
from feddst.flower.config import Value
from feddst.flower.deployment.family import descendants
from feddst.flower.deployment.local import LocalDeployment
from feddst.flower.deployment.ports import free_ports
from feddst.flower.deployment.services import Service
from feddst.flower.settings import read_run_config, write_app
from feddst.runtime.config import RunConfig
from feddst.runtime.metrics import Row, read_rows

pytestmark = pytest.mark.deployment

NODES = 3
AllGone = Callable[[Sequence[int]], bool]
SECONDS = 240.0
OVERHEAD = 40_000
"""Bytes that Flower may add to a message each way, with TLS, its polls and its heartbeats in between."""

COMMON: dict[str, Value] = {
    "method": "feddst",
    "data.clients": NODES,
    "cohort.size": NODES,
    "data.images_per_class": 40,
    "local.epochs": 2,
    "readjust.every": 2,
    "wire.values": "q4",
    "eval_every": 1,
    "checkpoint_every": 1,
}


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """The app's directory."""
    return write_app(tmp_path / "app").parent


def reference(tmp_path: Path, rounds: int) -> Path:
    """The same run in this process."""
    feddst.run(_config({**COMMON, "rounds": rounds}), out=tmp_path / "reference")
    return tmp_path / "reference"


def _config(values: dict[str, Value]) -> RunConfig:
    return read_run_config(values)[0]


def rows(run: Path) -> list[Row]:
    """What is known of the run's rounds by now."""
    path = run / "metrics.jsonl"
    return read_rows(path) if path.is_file() else []


def wait_for(happened: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait until something has happened."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it has not happened in time"
        time.sleep(0.1)


@contextmanager
def meanwhile(action: Callable[[], object]) -> Iterator[None]:
    """Do something in another thread; what goes wrong there is raised here."""
    failures: list[BaseException] = []

    def carry_out() -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=carry_out)
    thread.start()
    yield
    thread.join()
    if failures:
        raise failures[0]


def test_the_bits_of_the_reference_and_the_bytes_on_the_line(tmp_path: Path, app: Path) -> None:
    rounds, out = 3, tmp_path / "run"
    [port] = free_ports(1)
    with CountingProxy(f"127.0.0.1:{port}") as proxy:
        with LocalDeployment(tmp_path / "deployment", NODES, port=port, nodes_connect_to=proxy.address) as deployment:
            values = {**COMMON, "rounds": rounds, "out": str(out)}
            assert deployment.run_app(app, values, seconds=SECONDS).completed
        up, down = proxy.total.up, proxy.total.down
    assert (out / "checkpoint.safetensors").read_bytes() == (
        reference(tmp_path, rounds) / "checkpoint.safetensors"
    ).read_bytes()
    last = rows(out)[-1]
    messages = NODES * (rounds + 1)
    print(json.dumps({"up": up, "down": down, "said up": last.upload_bytes, "said down": last.download_bytes}))
    assert 0 < up - last.upload_bytes < OVERHEAD * messages
    assert 0 < down - last.download_bytes < OVERHEAD * messages


def test_a_killed_node_is_left_out_and_serves_again_when_it_is_back(
    tmp_path: Path, app: Path, start_again: Callable[[Service], None]
) -> None:
    out = tmp_path / "run"
    with LocalDeployment(tmp_path / "deployment", NODES) as deployment:

        def kill_and_restart() -> None:
            wait_for(lambda: len(rows(out)) >= 1)
            deployment.nodes[1].kill()
            wait_for(lambda: any(row.missing for row in rows(out)))
            start_again(deployment.nodes[1])

        values = {**COMMON, "rounds": 7, "out": str(out), "flower.deadline": 40.0, "flower.failures": 9}
        with meanwhile(kill_and_restart):
            assert deployment.run_app(app, values, seconds=SECONDS).completed
    found = rows(out)
    assert found[0].clients == NODES
    short = [row for row in found if row.missing]
    assert short
    assert all(row.clients == NODES - 1 and row.seconds < 45 for row in short)
    assert found[-1].clients == NODES


def test_a_killed_server_goes_on_from_its_last_round(tmp_path: Path, app: Path) -> None:
    rounds, out = 4, tmp_path / "run"
    with LocalDeployment(tmp_path / "deployment", NODES) as deployment:

        def kill() -> None:
            wait_for(lambda: len(rows(out)) >= 2)
            deployment.superlink.kill()  # and with it the process of the server's app

        values = {**COMMON, "rounds": rounds, "out": str(out)}
        with meanwhile(kill), pytest.raises(FlowerError):
            deployment.run_app(app, values, seconds=SECONDS)
        assert 2 <= len(rows(out)) < rounds
        deployment.start_superlink()
        assert deployment.run_app(app, {**values, "resume": True}, seconds=SECONDS).completed
    assert [row.round for row in rows(out)] == list(range(1, rounds + 1))
    plain = feddst.run(_config({**COMMON, "rounds": rounds}))
    resumed = feddst.run(_config({**COMMON, "rounds": rounds}), out=out, resume=True)
    assert all((resumed.model.state_dict()[name] == value).all() for name, value in plain.model.state_dict().items())


def test_a_run_that_is_stopped_twice_over_ends_in_order_and_goes_on(tmp_path: Path, all_gone: AllGone) -> None:
    """Were nodes to end before the server's app, this would play the other rounds alone and call the run complete."""
    out, rounds = tmp_path / "run", 4
    words = [sys.executable, "-m", "feddst", "flower", "deploy-local", "--out", str(out)]
    values = {**COMMON, "rounds": rounds, "nodes": 2, "cohort.size": 2}
    given = [word for name in values if name != "data.clients" for word in (f"--{name}", str(values[name]))]
    with subprocess.Popen([*words, *given], stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: len(rows(out)) >= 1)
        pids = [one.pid for one in descendants(process.pid)]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process.send_signal(number)
            time.sleep(0.2)
        said = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert "stopped; go on with" in said
    assert all_gone(pids)
    before = len(rows(out))
    assert 1 <= before < rounds
    assert not (out / "summary.json").exists()
    subprocess.run([*words, "--resume"], check=True, timeout=SECONDS)
    assert [row.clients for row in rows(out)] == [2] * rounds
