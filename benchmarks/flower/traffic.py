"""Count what crosses the line between SuperNodes and SuperLink, beside what a run says it sent.

    python -m benchmarks.flower.traffic --out results/flower-bytes.json

Three SuperNodes on loopback, with TLS and keys, behind a proxy that counts. What is over and above the payloads is
Flower's own: its messages' envelopes, its polls and heartbeats, and TLS.
"""

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.flower.proxy import CountingProxy
from feddst.errors import FlowerError
from feddst.flower.config import Value
from feddst.flower.deployment.local import LocalDeployment
from feddst.flower.deployment.ports import free_ports
from feddst.flower.settings import write_app
from feddst.runtime.machine import commit, machine
from feddst.runtime.metrics import read_rows

NODES, ROUNDS = 3, 5
SECONDS = 300.0
CASES = [("feddst", "q4"), ("feddst", "float32"), ("fedavgm", "float32")]


def measure() -> list[dict[str, Any]]:
    """For each case what the rows say, what the proxy saw, and what that is over for each message."""
    [port] = free_ports(1)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, CountingProxy(f"127.0.0.1:{port}") as proxy:
        folder = Path(name)
        app = write_app(folder / "app").parent
        with LocalDeployment(folder / "d", NODES, port=port, nodes_connect_to=proxy.address) as deployment:
            for method, values in CASES:
                out = folder / f"{method}-{values}"
                config: dict[str, Value] = {"method": method, "wire.values": values, "out": str(out), "rounds": ROUNDS}
                before = proxy.total.up, proxy.total.down
                end = deployment.run_app(app, {**config, "data.clients": NODES, "cohort.size": NODES}, seconds=SECONDS)
                if not end.completed:
                    raise FlowerError(f"the run {end.status}: {end.details}")
                found.append(beside(method, values, out, proxy, before))
                print(json.dumps(found[-1]), flush=True)
    return found


def beside(method: str, values: str, out: Path, proxy: CountingProxy, before: tuple[int, int]) -> dict[str, Any]:
    """What the run says and what the proxy saw; every node answered one greeting beside its rounds."""
    last = read_rows(out / "metrics.jsonl")[-1]
    messages = NODES * (ROUNDS + 1)
    seen = {"up": proxy.total.up - before[0], "down": proxy.total.down - before[1]}
    said = {"up": last.upload_bytes, "down": last.download_bytes}
    return {
        "method": method,
        "values": values,
        "messages": messages,
        "said": said,
        "seen": seen,
        "over_a_message": {way: (seen[way] - said[way]) / messages for way in said},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the record")
    args = parser.parse_args()
    if args.out.exists():
        parser.error(f"{args.out} exists already")
    record = {
        "command": "python -m benchmarks.flower.traffic",
        "commit": commit(),
        "machine": machine() | {"flwr": version("flwr")},
        "nodes": NODES,
        "rounds": ROUNDS,
        "cases": measure(),
    }
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
