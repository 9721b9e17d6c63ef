"""Watch masks live: how long weights stay that a mask grows, how large they become, and where weights move.

    python scripts/mask_life.py            # trains, writes results/mask-life.json, and draws docs/mask-life.png
    python scripts/mask_life.py --draw     # draws the record that is there

Four runs on bundled MNIST with the options of studies/masks-mnist.toml, 300 rounds of seed 0: three whose mask moves
within layers, one that also moves weights between them. Takes about 5 minutes on two CPU cores. Drawing needs
feddst[report].
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import feddst
from feddst.experiment.loop import Silent
from feddst.experiment.machine import commit, device, machine
from feddst.experiment.metrics import Row
from feddst.experiment.reproduce.study import read_study
from feddst.experiment.run import Run
from feddst.options import dotted
from feddst.protocol import Masks, ServerState, Tensors

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results/mask-life.json"
PICTURE = ROOT / "docs/mask-life.png"
STUDY = ROOT / "studies/masks-mnist.toml"
ROUNDS = 300
FIRST = 100
"""How far movement is measured: rounds 1 to this one."""
SAID = 50
"""Rounds between two lines of progress."""
SPROUT = {"method": "sprout", "sprout.every": 10, "sprout.alpha": 0.1, "sprout.until": 1000, "sprout.layers": "fixed"}
ROWS: dict[str, dict[str, Any]] = {
    "sprout": SPROUT,
    "rare": {**SPROUT, "sprout.every": 50, "sprout.alpha": 0.3},
    "feddst": {"method": "feddst", "readjust.alpha": 0.05},
    "across": {**SPROUT, "sprout.layers": "movement"},
}
"""What is set in each row beside what all of them share."""


def survival(history: Sequence[Tensor]) -> tuple[list[float], list[float]]:
    """How long weights stay, from a mask at the start and after each change: bool [changes + 1][weights].

    Entry k − 1 is the share that has been in the mask without a break for k changes more: of all weights that have
    entered at changes with k others after them, and of those that were there at the start.
    """
    last = len(history) - 1
    stayed, seen = [0] * last, [0] * last
    for change in range(1, last):
        there = history[change] & ~history[change - 1]
        entered = int(there.sum())
        for k in range(1, last - change + 1):
            there = there & history[change + k]
            stayed[k - 1] += int(there.sum())
            seen[k - 1] += entered
    original, there = [], history[0]
    for mask in history[1:]:
        there = there & mask
        original.append(int(there.sum()) / int(history[0].sum()))
    return [share / count for share, count in zip(stayed, seen, strict=True) if count], original


class Life(Silent):
    """Looks at the server's mask and weights after every round of a run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rounds: list[int] = []
        self.history: list[Masks] = []
        self.sizes: list[dict[str, float]] = []
        self.squares: dict[str, float] = {}
        self.weights: dict[str, int] = {}

    def started(self, runs: Sequence[Run]) -> None:
        [run] = runs
        self._before = run.state
        self.history.append(run.state.masks)

    def row(self, run: Run, row: Row) -> None:
        before, self._before = self._before, run.state
        if row.round <= FIRST:
            self._measure(before, run.state)
        if any(not torch.equal(mask, before.masks[name]) for name, mask in run.state.masks.items()):
            if self.rounds:
                self.sizes.append(_sizes(before.params, self.history[-2], before.masks))
            self.rounds.append(row.round)
            self.history.append(run.state.masks)
        if row.round % SAID == 0:
            print(f"{self.name} round {row.round}: {len(self.rounds)} changes of the mask", flush=True)

    def _measure(self, before: ServerState, after: ServerState) -> None:
        """Add up by how much a round has moved the weights that were in the mask before and after it."""
        for name, mask in after.masks.items():
            stayed = mask & before.masks[name]
            steps = (after.params[name] - before.params[name])[stayed].double()
            self.squares[name] = self.squares.get(name, 0.0) + float(steps.square().sum())
            self.weights[name] = self.weights.get(name, 0) + steps.numel()

    def told(self) -> dict[str, Any]:
        """The life of the mask in numbers; lists have an entry for each change unless they say otherwise."""
        entered, original = survival([_whole(masks) for masks in self.history])
        return {
            "rounds": self.rounds,
            "layers": {name: self._layer(name) for name in sorted(self.history[0])},
            "survival": {"entered": _short(entered), "original": _short(original)},
            "median_before_a_change": {
                "round": self.rounds[1:],
                **{key: _short([each[key] for each in self.sizes]) for key in ("newest", "others", "ratio")},
            },
        }

    def _layer(self, name: str) -> dict[str, Any]:
        masks = [each[name] for each in self.history]
        pairs = list(zip(masks, masks[1:], strict=False))
        return {
            "size": masks[0].numel(),
            "active_at_first": int(masks[0].sum()),
            "active": [int(mask.sum()) for mask in masks[1:]],
            "entered": [int((new & ~old).sum()) for old, new in pairs],
            "left": [int((old & ~new).sum()) for old, new in pairs],
            "movement": float(f"{(self.squares[name] / self.weights[name]) ** 0.5:.4g}"),
        }


def _sizes(params: Tensors, earlier: Masks, masks: Masks) -> dict[str, float]:
    """The median |θ| of the weights that are in `masks` and not in the `earlier` ones, and of the others."""
    theta, mask, old = (_whole(each) for each in ({name: params[name].abs() for name in masks}, masks, earlier))
    newest, others = float(theta[mask & ~old].median()), float(theta[mask & old].median())
    return {"newest": newest, "others": others, "ratio": newest / others}


def _whole(tensors: Mapping[str, Tensor]) -> Tensor:
    """All layers as one vector."""
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


def _short(numbers: Sequence[float]) -> list[float]:
    return [float(f"{number:.4g}") for number in numbers]


def watched(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """One run, and the life of its mask."""
    life, began = Life(name), time.perf_counter()
    result = feddst.run(feddst.configure(**options), watcher=life)
    seconds = round(time.perf_counter() - began, 1)
    return {"accuracy": result.summary.final, "seconds": seconds, **life.told()}


def measure() -> dict[str, Any]:
    """The record of all runs."""
    shared = dotted(read_study(STUDY)["options"])
    shared |= {"seed": 0, "rounds": ROUNDS, "eval_every": ROUNDS, "engine.kind": "native"}
    began = time.perf_counter()
    rows = {name: {"options": own, **watched(name, {**shared, **own})} for name, own in ROWS.items()}
    return {
        "command": "python scripts/mask_life.py",
        "commit": commit(),
        "machine": machine(),
        "device": device(feddst.configure(**shared).engine),
        "seconds": round(time.perf_counter() - began, 1),
        "options": shared,
        "movement_rounds": FIRST,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="draw the record that is there, without training")
    if not parser.parse_args().draw:
        RECORD.write_text(json.dumps(measure(), indent=1) + "\n")
        print(RECORD)


if __name__ == "__main__":
    main()
