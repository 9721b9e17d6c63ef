"""Does the package learn what it should? MNIST with the paper's settings, 100 rounds, three seeds a method.

    python scripts/mnist_100_rounds.py results/mnist-100-rounds

Runs FedDST and FedAvgM as the paper's text has them (on shards), FedDST with quantised updates, and FedDST as the
published code has it, the seeds of each in lockstep, and writes a file for each with every curve, the command, the
commit and the machine. Needs torch and numpy alone. Takes about 10 minutes on two CPU cores.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from feddst.data import Dataset, federate, load
from feddst.engines import make_engine
from feddst.models import make_module, network
from feddst.options import updated
from feddst.runtime.config import RunConfig
from feddst.runtime.loop import Silent, play
from feddst.runtime.metrics import GIB, Row
from feddst.runtime.presets import PRESETS
from feddst.runtime.run import Run


@dataclass(frozen=True)
class Claim:
    """One line of the record: a preset, with what is changed in it, and what is expected at the end."""

    name: str
    preset: str
    changes: dict[str, Any]
    expected: str


_CLAIMS = (
    Claim("feddst", "table1-feddst", {"data.partition": "shards"}, "at least 95 %"),
    Claim("fedavgm", "table1-fedavgm", {"data.partition": "shards"}, "at least 97 %"),
    Claim("feddst-q8", "table1-feddst", {"data.partition": "shards", "wire.values": "q8"}, "as feddst"),
    Claim("feddst-q4", "table1-feddst", {"data.partition": "shards", "wire.values": "q4"}, "at most 0.3 below feddst"),
    Claim("feddst-q2", "table1-feddst", {"data.partition": "shards", "wire.values": "q2"}, "below feddst"),
    Claim("feddst-published", "table1-feddst-published", {}, "about 81 ± 3 %"),
)
CLAIMS = {claim.name: claim for claim in _CLAIMS}


class Printer(Silent):
    """One line for each evaluation."""

    def row(self, run: Run, row: Row) -> None:
        if row.accuracy is not None:
            print(f"{run.name} round {row.round}: {100 * row.accuracy:.2f} %", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory for the records")
    parser.add_argument("--claims", nargs="+", choices=list(CLAIMS), default=list(CLAIMS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--engine", choices=["native", "reference"], default="native")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--commit", default="", help="where the tree is not a git checkout")
    args = parser.parse_args()
    dataset = load(RunConfig().data)
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.claims:
        record = {
            "command": " ".join(["python", *sys.argv]),
            "commit": args.commit or _commit(),
            "machine": f"{platform.machine()}, torch {torch.__version__}, {_device(args.device)}",
            "engine": args.engine,
            **_measure(CLAIMS[name], args, dataset),
        }
        (args.out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        mean, std, expected = record["mean"], record["std"], record["expected"]
        print(f"{name}: {mean:.2f} ± {std:.2f} % at round {args.rounds}, expected {expected}")


def _measure(claim: Claim, args: argparse.Namespace, dataset: Dataset) -> dict[str, Any]:
    changes: dict[str, Any] = {"rounds": args.rounds, "cap_gib": 0.0, **claim.changes}
    changes |= {"engine.kind": args.engine, "engine.workers": args.workers, "engine.device": args.device}
    base = updated(updated(RunConfig(), PRESETS[claim.preset].options), changes)
    runs = [_prepare(updated(base, {"seed": seed}), dataset) for seed in args.seeds]
    module = network(base.model, dataset.input_shape, dataset.num_classes)
    with closing(make_engine(base.engine, module, dataset)) as engine:
        play(runs, engine, Printer())
    finals = [100 * run.summary().final for run in runs]
    return {
        "claim": claim.name,
        "preset": claim.preset,
        "rounds": args.rounds,
        "changes": claim.changes,
        "expected": claim.expected,
        "seeds": args.seeds,
        "final": finals,
        "best": [100 * run.summary().best for run in runs],
        "mean": statistics.mean(finals),
        "std": statistics.stdev(finals) if len(finals) > 1 else 0.0,
        "curves": {str(run.config.seed): _curve(run.rows) for run in runs},
    }


def _prepare(config: RunConfig, dataset: Dataset) -> Run:
    def fresh() -> torch.nn.Module:
        return network(config.model, dataset.input_shape, dataset.num_classes)

    return Run(config, federate(config.data, config.seed, dataset), make_module(fresh, config.seed))


def _curve(rows: Sequence[Row]) -> list[dict[str, float]]:
    return [
        {
            "round": row.round,
            "accuracy": row.accuracy,
            "global": row.score_global or 0.0,
            "upload_gib": row.upload_bits / GIB,
            "upload_bytes": row.upload_bytes,
            "download_bytes": row.download_bytes,
        }
        for row in rows
        if row.accuracy is not None
    ]


def _device(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
