"""How unevenly masks spread a layer's weights over its units, from the checkpoints of a study's runs.

    feddst study studies/gradient-mnist.toml --seeds 3 --rounds 400 --out runs/gradient-mnist
    python scripts/crowding.py runs/gradient-mnist          # writes results/crowding.json

Of the layer with the most active weights: the share of them at the tenth of its outputs that has the most, and the
share of its inputs that has none; for each row, means over seeds, when runs ended.
"""

import argparse
import json
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from feddst.runtime.machine import commit
from feddst.runtime.storage import RunDirectory
from feddst.studies.reproduce.record import load_record

RECORD = Path(__file__).parents[1] / "results/crowding.json"
TENTH = 10


def crowding(mask: Tensor) -> tuple[float, float]:
    """The share of a mask's weights [out, in, …] at the fullest tenth of outputs, and the share of empty inputs."""
    weights = mask.flatten(2).sum(2) if mask.ndim > 2 else mask.long()
    outputs, inputs = weights.sum(1), weights.sum(0)
    fullest = outputs.sort(descending=True).values[: max(1, len(outputs) // TENTH)]
    return float(fullest.sum() / outputs.sum()), float((inputs == 0).double().mean())


def largest_mask(run: Path) -> tuple[str, Tensor]:
    """The mask with the most weights in a run's last checkpoint, and its layer's name."""
    with safe_open(RunDirectory(run).checkpoint, "pt") as file:
        names = [name for name in file.keys() if name.startswith("masks/")]  # noqa: SIM118 - it is no dictionary
        masks = {name.removeprefix("masks/"): file.get_tensor(name) for name in names}
    return max(masks.items(), key=lambda item: int(item[1].sum()))


def measured(folder: Path) -> dict[str, dict[str, float | int | str]]:
    """What there is for each row of a study in this folder."""
    found: dict[str, dict[str, float | int | str]] = {}
    for row in load_record(folder).rows:
        if not row.runs:
            continue
        masks = [largest_mask(folder / run.path.name) for run in row.runs]
        each = [crowding(mask) for _, mask in masks]
        found[row.name] = {
            "layer": masks[0][0],
            "seeds": len(each),
            "round": row.runs[0].rows[-1].round,
            "fullest_outputs": sum(full for full, _ in each) / len(each),
            "empty_inputs": sum(empty for _, empty in each) / len(each),
        }
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where a study's runs and their record are")
    folder = parser.parse_args().folder
    made = {
        "command": f"python scripts/crowding.py {folder}",
        "commit": commit(),
        "study": load_record(folder).title,
        "rows": measured(folder),
    }
    RECORD.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(RECORD)
