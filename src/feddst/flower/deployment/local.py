"""A SuperLink and SuperNodes on this machine, on loopback, that end with the block that began them."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from feddst.errors import FlowerError
from feddst.flower.config import Value
from feddst.flower.deployment.certificates import Certificates, NodeKey, make_certificates, make_node_key
from feddst.flower.deployment.command_line import (
    ask,
    environment,
    program,
    write_connection,
    write_values,
)
from feddst.flower.deployment.ports import HOST, answers, free_ports
from feddst.flower.deployment.private import make_private, open_private
from feddst.flower.deployment.runs import RunEnd, begin, end_of, follow
from feddst.flower.deployment.services import Service, stop
from feddst.flower.deployment.signals import Signals

START = 60.0
"""Seconds that a process has to start in."""


class LocalDeployment:
    """While this is entered, a SuperLink and `nodes` SuperNodes run, with all their files in `folder`.

    `secure` means TLS, and SuperNodes known by their keys, all made anew. A node's config has `partition-id`,
    `num-partitions`, `state-dir` (a directory of its own that outlives its process), and what `node_config` has for
    its partition id. The SuperLink listens on `port`, by default a free one; SuperNodes connect to `nodes_connect_to`
    instead if it is given, such as a proxy's address. The command line of node i begins with the words of `prefix(i)`,
    such as `ip netns exec`. `signals` are those of a caller that has more to do after the processes have ended.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int,
        *,
        secure: bool = True,
        node_config: Mapping[int, Mapping[str, Value]] | None = None,
        port: int | None = None,
        nodes_connect_to: str | None = None,
        prefix: Callable[[int], Sequence[str]] = lambda index: (),
        signals: Signals | None = None,
    ) -> None:
        self.folder = folder.resolve()
        make_private(self.folder)
        self.home = self.folder / "home"
        self.count = nodes
        self.port = port if port is not None else free_ports(1)[0]
        self.address = f"{HOST}:{self.port}"
        self._node_config = node_config or {}
        self._nodes_connect_to = nodes_connect_to or self.address
        self._prefix = prefix
        self._certificates = make_certificates(self.folder / "certificates") if secure else None
        self.superlink = self._make_superlink()
        self.nodes: list[Service] = []
        self._signals = signals or Signals()
        self._entered = ExitStack()
        self._own_signals = signals is None

    def __enter__(self) -> "LocalDeployment":
        if self._own_signals:
            self._entered.enter_context(self._signals)
        try:
            write_connection(self.home, self.address, self._certificates.authority if self._certificates else None)
            self.start_superlink()
            ports = free_ports(self.count)
            self.nodes = [self._make_node(index, port) for index, port in enumerate(ports)]
            for node in self.nodes:
                node.start()
            for node in self.nodes:
                wait_for_node(node)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process of this deployment in order; signals may hasten this, but never break it off.

        The server's app is first: left alone it would play the remaining rounds without clients. Its run can be
        resumed whenever it ended. Nodes are next, as they sign off at the SuperLink.
        """
        self._signals.stopping = True
        try:
            with suppress(FlowerError, ProcessLookupError):  # there is none, or it has just ended
                self._kill_server_app()
            stop(self.nodes, self._in_a_hurry)
        finally:
            stop([self.superlink], self._in_a_hurry)
            self._entered.close()

    def run_app(
        self,
        app: Path,
        run_config: Mapping[str, Value] | None = None,
        *,
        seconds: float,
        on_line: Callable[[str], None] = lambda line: None,
    ) -> RunEnd:
        """Run the Flower app in a directory to its end, handing each line that the ServerApp writes to `on_line`.

        Raises if the run cannot begin, if it has not ended in time, or if the SuperLink ends before it does. Whatever
        error is raised, by `on_line` too, the run is stopped; on a signal the whole deployment is, with `stop`.
        """
        run = begin(self.home, app, run_config or {})
        try:
            follow(self.home, run, self.folder / "logs" / f"run-{run}.log", on_line, self.superlink, seconds)
            return end_of(self.home, run)
        except Exception:
            with suppress(FlowerError):
                ask(self.home, "stop", run)
            raise

    def start_superlink(self) -> None:
        """Start the SuperLink, also after it was killed: its database has its runs and nodes."""
        self.superlink.start()
        self.superlink.wait_until(lambda: answers(self.port), START)

    def node_service(self, name: str, partition: int, port: int, key: NodeKey | None) -> Service:
        """A SuperNode that is not started yet, with all its files in a directory of this name."""
        folder = self.folder / "nodes" / name
        make_private(folder / "state")
        config: dict[str, Value] = {"partition-id": partition, "num-partitions": self.count}
        config |= {"state-dir": str(folder / "state"), **self._node_config.get(partition, {})}
        command = [program("flower-supernode"), "--superlink", self._nodes_connect_to]
        command += ["--host", HOST, "--port", str(port)]
        command += ["--node-config", str(write_values(folder / "config.toml", config))]
        if self._certificates is None or key is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self._certificates.authority)]
            command += ["--auth-supernode-private-key", str(key.private)]
        command = [*self._prefix(partition), *command]
        return Service(f"SuperNode {name}", command, environment(folder / "home"), self.folder / "logs" / f"{name}.log")

    def _kill_server_app(self) -> None:
        """SIGKILL to the process of the ServerApp alone."""
        os.kill(self.superlink.child("flwr-serverapp"), signal.SIGKILL)

    def _in_a_hurry(self) -> bool:
        return self._signals.hurry

    def _make_superlink(self) -> Service:
        database = self.folder / "superlink.db"
        open_private(database).close()  # what SQLite puts beside it is as private
        command = [program("flower-superlink"), "--host", HOST, "--port", str(self.port)]
        command += ["--database", str(database), "--disable-runtime-dependency-installation"]
        command += _server_security(self._certificates)
        return Service("the SuperLink", command, environment(self.home), self.folder / "logs" / "superlink.log")

    def _make_node(self, index: int, port: int) -> Service:
        name = f"node-{index}"
        key = None
        if self._certificates is not None:
            key = make_node_key(self.folder / "nodes" / name, "key")
            ask(self.home, "supernode", "register", str(key.public))
        return self.node_service(name, index, port, key)


def _server_security(files: Certificates | None) -> list[str]:
    if files is None:
        return ["--insecure"]
    words = ["--ssl-ca-certfile", str(files.authority), "--ssl-certfile", str(files.certificate)]
    return [*words, "--ssl-keyfile", str(files.key), "--enable-supernode-auth"]


def wait_for_node(node: Service) -> None:
    """Wait until a SuperNode writes its id: then the SuperLink has let it in."""
    node.wait_until(lambda: "SuperNode ID:" in node.output(), START)
