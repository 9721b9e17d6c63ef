"""Train over slow links: every SuperNode in a network namespace of its own, behind a link of 1 Mbit/s up and 10 down.

    sudo python -m benchmarks.flower.slow_network --out results/slow-network.json --picture docs/slow-network.png

A SuperLink and five SuperNodes with TLS and keys, each of which holds two of the ten digits. Every method trains until
the mean client accuracy is 90 %. Bytes are those that the kernel counted on the links, headers and Flower's own among
them. The rates are `tc`'s; the delay is `netem`'s where the kernel has it, and else that of a relay in each namespace.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.flower.proxy import CountingProxy, Link
from feddst.errors import FlowerError
from feddst.flower.config import Value
from feddst.flower.deployment.local import LocalDeployment
from feddst.flower.deployment.ports import free_ports
from feddst.flower.settings import write_app
from feddst.runtime.machine import commit, machine
from feddst.runtime.metrics import read_rows

NODES = 5
UP, DOWN = 1_000_000, 10_000_000
"""Bits a second of a node's link."""
DELAY = 0.05
"""Seconds each way: 100 ms there and back."""
TARGET = 0.9
SECONDS = 1500.0
CASES = [(method, values) for method in ("fedavgm", "randommask", "feddst") for values in ("float32", "q4")]
COMMON: dict[str, Value] = {
    "data.clients": NODES,
    "cohort.size": NODES,
    "data.images_per_class": 40,
    "local.epochs": 5,
    "rounds": 60,
    "eval_every": 1,
    "flower.deadline": 300.0,
}


class TargetReachedError(Exception):
    """The target accuracy is reached, and the run can stop."""


@dataclass(frozen=True)
class Wire:
    """A node's link: a pair of virtual interfaces, one in the node's namespace."""

    index: int

    @property
    def space(self) -> str:
        return f"feddst-{self.index}"

    @property
    def here(self) -> str:
        return f"fdst{self.index}r"

    @property
    def there(self) -> str:
        return f"fdst{self.index}n"

    @property
    def address(self) -> str:
        """This end's."""
        return f"10.231.{self.index}.1"

    def inside(self) -> list[str]:
        """The words before a command that is to run in the namespace."""
        return ["ip", "netns", "exec", self.space]

    def bytes(self) -> tuple[int, int]:
        """What the kernel has counted: up, and down."""
        counters = Path("/sys/class/net", self.here, "statistics")
        return int((counters / "rx_bytes").read_text()), int((counters / "tx_bytes").read_text())


def sh(*words: str) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise FlowerError(f"{' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def laid(wire: Wire, delay: float) -> Iterator[bool]:
    """A link while this is entered; whether the kernel does the delaying."""
    sh("ip", "netns", "add", wire.space)
    try:
        sh("ip", "link", "add", wire.here, "type", "veth", "peer", "name", wire.there, "netns", wire.space)
        sh("ip", "address", "add", f"{wire.address}/30", "dev", wire.here)
        sh("ip", "link", "set", wire.here, "up")
        for words in (
            ["address", "add", f"10.231.{wire.index}.2/30", "dev", wire.there],
            ["link", "set", wire.there, "up"],
            ["link", "set", "lo", "up"],
        ):
            sh(*wire.inside(), "ip", *words)
        yield all([shaped(wire.inside(), wire.there, UP, delay), shaped([], wire.here, DOWN, delay)])
    finally:
        subprocess.run(["ip", "netns", "del", wire.space], capture_output=True)  # the link goes with it


def shaped(prefix: Sequence[str], interface: str, rate: int, delay: float) -> bool:
    """Limit what leaves by an interface; whether it is delayed too."""
    qdisc = [*prefix, "tc", "qdisc", "add", "dev", interface]
    sh(*qdisc, "root", "handle", "1:", "tbf", "rate", f"{rate}bit", "burst", "16kb", "latency", "400ms")
    netem = [*qdisc, "parent", "1:", "handle", "2:", "netem", "delay", f"{delay}s", "limit", "10000"]
    return not subprocess.run(netem, capture_output=True).returncode


@contextmanager
def relayed(wire: Wire, port: int, delay: float) -> Iterator[None]:
    """In the namespace, loopback's `port` is this machine's, by way of the link."""
    words = [*wire.inside(), sys.executable, "-m", "benchmarks.flower.slow_network"]
    words += ["--relay", f"{wire.address}:{port}", "--delay", str(delay)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def relay(target: str, delay: float) -> None:
    """What runs in a namespace, until it is ended."""
    link = Link(delay=delay)
    with CountingProxy(target, up=link, down=link, port=int(target.rpartition(":")[2])):
        while True:
            time.sleep(3600)


def counted(wires: Sequence[Wire]) -> tuple[int, int]:
    """Bytes on all links: up, and down."""
    ups, downs = zip(*(wire.bytes() for wire in wires), strict=True)
    return sum(ups), sum(downs)


def trained(
    deployment: LocalDeployment, wires: Sequence[Wire], app: Path, out: Path, case: tuple[str, str]
) -> dict[str, Any]:
    """Train one method to the target: when, and with how many bytes, it was where."""
    method, values = case
    before, began = counted(wires), 0.0
    curve: list[dict[str, float]] = []

    def note(line: str) -> None:
        nonlocal began, before
        found = re.search(r"round (\d+): accuracy ([\d.]+) %", line)
        if found is None:
            return
        rows = read_rows(out / "metrics.jsonl")
        began = began or time.monotonic() - rows[0].seconds
        up, down = (now - then for now, then in zip(counted(wires), before, strict=True))
        point = {"round": int(found[1]), "seconds": time.monotonic() - began, "up": up, "down": down}
        curve.append({**point, "accuracy": float(found[2]) / 100, "payload_up": rows[-1].upload_bytes})
        print(f"{method} {values}: {curve[-1]}", flush=True)
        if float(found[2]) >= 100 * TARGET:
            raise TargetReachedError

    config = {**COMMON, "method": method, "wire.values": values, "out": str(out)}
    with suppress(TargetReachedError):
        deployment.run_app(app, config, seconds=SECONDS, on_line=note)
    return {"method": method, "values": values, "reached": curve[-1]["accuracy"] >= TARGET, "curve": curve}


def measure() -> tuple[list[dict[str, Any]], bool]:
    """All methods, one after another; and whether the kernel delayed packets."""
    wires = [Wire(index) for index in range(NODES)]
    [port] = free_ports(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        delayed = [stack.enter_context(laid(wire, DELAY)) for wire in wires]
        by_kernel = all(delayed)
        for wire in wires:
            stack.enter_context(CountingProxy(f"127.0.0.1:{port}", host=wire.address, port=port))
            stack.enter_context(relayed(wire, port, 0.0 if by_kernel else DELAY))
        app = write_app(folder / "app").parent
        prefix = [wire.inside() for wire in wires]
        deployment = LocalDeployment(folder / "d", NODES, port=port, prefix=lambda index: prefix[index])
        stack.enter_context(deployment)
        runs = [trained(deployment, wires, app, folder / "-".join(case), case) for case in CASES]
    return runs, by_kernel


def draw(record: dict[str, Any], path: Path) -> None:
    """Accuracy against the time since training began."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = {"fedavgm": "FedAvgM", "randommask": "RandomMask", "feddst": "FedDST"}
    colours = {"fedavgm": "#0072b2", "randommask": "#cc79a7", "feddst": "black"}
    figure, axes = pyplot.subplots(figsize=(7.5, 4))
    for run in record["runs"]:
        curve = run["curve"]
        bits = "4 bits" if run["values"] == "q4" else "32 bits"
        label = f"{titles[run['method']]}, {bits}: {curve[-1]['up'] / 2**20:.1f} MiB up"
        style = "--" if run["values"] == "q4" else "-"
        seconds, accuracy = ([0.0, *(point[what] for point in curve)] for what in ("seconds", "accuracy"))
        accuracy = [100 * a for a in accuracy]
        axes.plot(seconds[1:], accuracy[1:], style, color=colours[run["method"]], label=label, marker=".")
    axes.axhline(100 * TARGET, color="grey", linewidth=0.8)
    axes.set_xlabel("seconds")
    axes.set_ylabel("mean client accuracy [%]")
    axes.set_title(f"MNIST on {NODES} nodes behind 1 Mbit/s up, 10 Mbit/s down, 100 ms", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=160)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("slow-network.json"), help="where to write the record")
    parser.add_argument("--picture", type=Path, help="where to draw it")
    parser.add_argument("--redraw", action="store_true", help="draw the record that is there")
    parser.add_argument("--relay", help=argparse.SUPPRESS)
    parser.add_argument("--delay", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.relay:
        relay(args.relay, args.delay)
    if not args.redraw:
        if args.out.exists():
            parser.error(f"{args.out} exists already")
        if os.geteuid() or not shutil.which("tc"):
            parser.error("namespaces and tc need root, and iproute2")
        runs, by_kernel = measure()
        delay = "netem" if by_kernel else "a relay in each namespace"
        link = {"up": UP, "down": DOWN, "round_trip": 2 * DELAY, "rate_by": "tc tbf", "delay_by": delay}
        record = {
            "command": "python -m benchmarks.flower.slow_network",
            "commit": commit(),
            "machine": machine() | {"flwr": version("flwr")},
            "nodes": NODES,
            "link": link,
            "options": COMMON,
            "target": TARGET,
            "runs": runs,
        }
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    if args.picture is not None:
        draw(json.loads(args.out.read_text()), args.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
