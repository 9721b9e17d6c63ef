"""Starts Flower's processes: a minute or two."""

import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.flower.proxy import CountingProxy
from feddst.errors import FlowerError
from feddst.flower.deployment.certificates import make_node_key
from feddst.flower.deployment.command_line import ask, write_connection
from feddst.flower.deployment.family import descendants
from feddst.flower.deployment.local import LocalDeployment
from feddst.flower.deployment.ports import free_ports
from feddst.flower.deployment.services import Service, stop

NOOP = Path(__file__).parent / "apps" / "noop"
NODES = 2
AllGone = Callable[[Sequence[int]], bool]

pytestmark = pytest.mark.deployment


@pytest.fixture(scope="module")
def proxy_and_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CountingProxy, LocalDeployment]]:
    (port,) = free_ports(1)
    with (
        CountingProxy(f"127.0.0.1:{port}") as proxy,
        LocalDeployment(tmp_path_factory.mktemp("f"), NODES, port=port, nodes_connect_to=proxy.address) as deployment,
    ):
        yield proxy, deployment


@pytest.fixture
def deployment(proxy_and_deployment: tuple[CountingProxy, LocalDeployment]) -> LocalDeployment:
    return proxy_and_deployment[1]


def test_an_app_runs_to_its_end_and_its_lines_arrive(deployment: LocalDeployment) -> None:
    lines: list[str] = []
    end = deployment.run_app(NOOP, {"nodes": NODES}, seconds=60, on_line=lines.append)
    assert end.completed
    (shown,) = [json.loads(line) for line in lines if line.startswith("{")]
    assert shown["noop"] == "own"
    assert len(shown["clients"]) == NODES


def test_an_app_that_fails_says_so(deployment: LocalDeployment) -> None:
    lines: list[str] = []
    end = deployment.run_app(NOOP, {"loops": "nonsense"}, seconds=60, on_line=lines.append)
    assert end.status == "failed"
    assert any("KeyError: 'nonsense'" in line for line in lines)


def test_an_app_that_does_not_end_is_stopped(deployment: LocalDeployment) -> None:
    with pytest.raises(FlowerError, match="had not ended after 3 s, and was stopped"):
        deployment.run_app(NOOP, {"nodes": NODES + 1}, seconds=3)


def test_an_app_that_is_not_there_is_an_error(deployment: LocalDeployment, tmp_path: Path) -> None:
    with pytest.raises(FlowerError, match=r"Failed to load Flower App configuration"):
        deployment.run_app(tmp_path, seconds=60)


def test_nodes_came_through_what_sits_between(proxy_and_deployment: tuple[CountingProxy, LocalDeployment]) -> None:
    proxy, _ = proxy_and_deployment
    assert len(proxy.connections) >= NODES
    assert proxy.total.up > 1000
    assert proxy.total.down > 1000


def test_a_key_that_nobody_registered_is_refused(deployment: LocalDeployment) -> None:
    key = make_node_key(deployment.folder / "nodes" / "stranger", "key")
    stranger = deployment.node_service("stranger", deployment.count, free_ports(1)[0], key)
    stranger.start()
    try:
        assert stranger.wait(30) != 0
        assert "Exit Code: 305" in stranger.output()
        assert "SuperNode ID:" not in stranger.output()
    finally:
        stop([stranger])


def test_a_plain_http_client_gets_nothing(deployment: LocalDeployment, tmp_path: Path) -> None:
    with socket.create_connection(("127.0.0.1", deployment.port)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.settimeout(10)
        assert b"HTTP" not in connection.recv(1000)
    write_connection(tmp_path, deployment.address, None)
    with pytest.raises(FlowerError):
        ask(tmp_path, "list", seconds=20)


def test_a_client_that_does_not_trust_the_authority_finds_out(deployment: LocalDeployment) -> None:
    connection = socket.create_connection(("127.0.0.1", deployment.port))
    with connection, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(connection, server_hostname="127.0.0.1")


def test_a_node_and_the_superlink_can_be_killed_and_started_again(
    tmp_path: Path, all_gone: AllGone, start_again: Callable[[Service], None]
) -> None:
    with LocalDeployment(tmp_path, 1, secure=False, node_config={0: {"name": 'it\'s "quoted"'}}) as deployment:
        deployment.superlink.kill()
        deployment.start_superlink()
        assert deployment.run_app(NOOP, seconds=90).completed
        deployment.nodes[0].kill()
        start_again(deployment.nodes[0])
        pids = [service.pid for service in (deployment.superlink, *deployment.nodes)]
        pids += [process.pid for pid in pids for process in descendants(pid)]
        assert len(pids) >= 4
    assert all_gone(pids)


def test_a_superlink_that_cannot_start_is_an_error_with_its_log(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        deployment = LocalDeployment(tmp_path, 1, secure=False, port=taken.getsockname()[1])
        deployment.superlink.start()
        try:
            with pytest.raises(FlowerError, match=r"the SuperLink ended with code (?s:.*)address already in use"):
                deployment.superlink.wait_until(lambda: False, 30)
        finally:
            deployment.stop()


INTERRUPTED = """
import signal, sys, time
from pathlib import Path
from feddst.flower.deployment.local import LocalDeployment
signal.signal(signal.SIGINT, signal.default_int_handler)  # which may have been ignored where the tests were started
with LocalDeployment(Path(sys.argv[1]), 1, secure=False):
    print("up", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(tmp_path: Path, number: signal.Signals, all_gone: AllGone) -> None:
    words = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        pids = [one.pid for one in descendants(process.pid)]
        assert len(pids) >= 4  # a SuperLink and a SuperNode, each with its guard
        process.send_signal(number)
        process.wait(30)
    assert all_gone(pids)


def open_to_others(folder: Path) -> list[Path]:
    """The files in a directory that others can come to and read."""
    found: list[Path] = []
    for path in folder.iterdir():
        if path.stat().st_mode & 0o077:
            found += open_to_others(path) if path.is_dir() else [path]
    return found


def test_others_cannot_read_what_a_deployment_has_written(deployment: LocalDeployment) -> None:
    assert deployment.run_app(NOOP, {"nodes": NODES}, seconds=60).completed
    names = {path.name for path in deployment.folder.iterdir()}
    assert {"superlink.db", "home", "nodes", "certificates", "logs"} <= names
    assert open_to_others(deployment.folder) == []
