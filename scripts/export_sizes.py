"""Measure exported files: their bytes, and what rounding their values does to the model that is loaded again.

    python scripts/export_sizes.py --out results/export-sizes.json

FedDST on MNIST, as `feddst run --rounds 40` has it; accuracies are those on all 10,000 test images.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, get_args

import torch

import feddst
from feddst.data import Dataset, federate
from feddst.export import Format, Values
from feddst.runtime.machine import commit, machine

ROUNDS = 40


def measure(rounds: int) -> list[dict[str, Any]]:
    """Each file's bytes, the loaded model's accuracy, and the largest change of a score."""
    config = feddst.configure(rounds=rounds)
    data = federate(config.data, config.seed).dataset
    with tempfile.TemporaryDirectory() as name:
        run = feddst.run(config, out=Path(name) / "run")
        plain = _scores(run.model, data)
        dense: tuple[Format, Values] = ("safetensors", "float32")
        return [_measured(run, data, plain, *dense)] + [
            _measured(run, data, plain, "sparse", values) for values in get_args(Values)
        ]


def _measured(run: feddst.Result, data: Dataset, plain: torch.Tensor, format: Format, values: Values) -> dict[str, Any]:
    assert run.path is not None
    made = feddst.export(run.path, format, run.path / f"{format}-{values}", values=values)
    scores = _scores(feddst.load(made.path), data)
    return {
        "format": format,
        "values": values,
        "bytes": made.size,
        "of_dense": made.size / made.dense_size,
        "accuracy": float((scores.argmax(dim=1) == data.test_labels).float().mean()),
        "largest_change": float((scores - plain).abs().max()),
    }


@torch.no_grad()
def _scores(model: torch.nn.Module, data: Dataset) -> torch.Tensor:
    result: torch.Tensor = model(data.inputs(data.test_images))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    if given.out.exists():
        parser.error(f"--out: {given.out} exists already")
    record = {
        "command": f"python scripts/export_sizes.py --rounds {given.rounds}",
        "commit": commit(),
        "machine": machine(),
        "files": measure(given.rounds),
    }
    given.out.write_text(json.dumps(record, indent=2) + "\n")
    for file in record["files"]:
        print(file)


if __name__ == "__main__":
    main()
