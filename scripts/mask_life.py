"""Follow masks through runs: how long grown weights stay, how large they become, and where weights move.

    python scripts/mask_life.py            # trains, writes results/mask-life.json and draws docs/mask-life.png
    python scripts/mask_life.py --draw     # draws the record that is there

Runs on bundled MNIST with the options of studies/masks-mnist.toml, 300 rounds of seed 0: masks that move within
layers, and one that moves between them. Takes about 6 minutes on two CPU cores. Drawing needs feddst[report].
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import feddst
from feddst.core import Masks, ServerState, Tensors
from feddst.options import dotted
from feddst.runtime.loop import Silent
from feddst.runtime.machine import commit, device
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.shown import COLOURS
from feddst.studies.plots import GREY, new_figure, save_png
from feddst.studies.reproduce.study import read_study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results/mask-life.json"
PICTURE = ROOT / "docs/mask-life.png"
STUDY = ROOT / "studies/masks-mnist.toml"
ROUNDS = 300
FIRST = 100
"""How far movement is measured: rounds 1 to this one."""
SAID = 50
"""Rounds between two lines of progress."""
SPROUT = {
    "method": "sprout",
    "sprout.every": 10,
    "sprout.alpha": 0.1,
    "sprout.until": 1000,
    "sprout.layers": "fixed",
    "sprout.start": 0.95,
    "sprout.spread": "same",
}
ROWS: dict[str, dict[str, Any]] = {
    "sprout": SPROUT,
    "rare": {**SPROUT, "sprout.every": 50, "sprout.alpha": 0.3},
    "spared": {**SPROUT, "sprout.grace": 50},
    "feddst": {"method": "feddst", "readjust.alpha": 0.05},
    "across": {**SPROUT, "sprout.layers": "movement"},
    "float32": {**SPROUT, "wire.values": "float32", "wire.feedback": False},
}
"""What is set in each row beside what all of them share; the last one is the first with every change sent in full."""

SHOWN = 10
"""How many changes survival is drawn for."""
NEW = COLOURS[1]
DASHES = (4, 3)
PERCENT = (2, 5, 10, 20, 50, 100)
LAYERS = dict(zip(("conv1", "conv2", "fc1", "fc2"), (COLOURS[0], COLOURS[2], COLOURS[4], COLOURS[3]), strict=True))


def survival(history: Sequence[Tensor]) -> tuple[list[float], list[float]]:
    """How long weights stay, from a mask at the start and after each change: bool [changes + 1][weights].

    Entry k − 1 is the share that has stayed in the mask without a break for k changes more: of all weights that have
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
    """Looks at the server's masks and weights after every round of a run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rounds: list[int] = []
        self.masks: list[Masks] = []
        self.params: list[Tensors] = []
        self.squares: dict[str, float] = {}
        self.weights: dict[str, int] = {}

    def started(self, runs: Sequence[Run]) -> None:
        [run] = runs
        self._before = run.state
        self.masks.append(run.state.masks)

    def row(self, run: Run, row: Row) -> None:
        before, self._before = self._before, run.state
        if row.round <= FIRST:
            self._measure(before, run.state)
        if any(not torch.equal(mask, before.masks[name]) for name, mask in run.state.masks.items()):
            self.rounds.append(row.round)
            self.params.append(before.params)
            self.masks.append(run.state.masks)
        if row.round % SAID == 0:
            print(f"{self.name} round {row.round}: the mask has changed {len(self.rounds)} times", flush=True)

    def _measure(self, before: ServerState, after: ServerState) -> None:
        """Add up by how much a round has moved the weights that were in the mask before and after it."""
        for name, mask in after.masks.items():
            steps = (after.params[name] - before.params[name])[mask & before.masks[name]].double()
            self.squares[name] = self.squares.get(name, 0.0) + float(steps.square().sum())
            self.weights[name] = self.weights.get(name, 0) + steps.numel()

    def told(self) -> dict[str, Any]:
        """The life of the mask in numbers.

        Lists have an entry for each change; those of the newest weights for each but the first. The newest weights
        entered at the change before, and have the sizes of a round before the change.
        """
        entered, original = survival([_whole(masks) for masks in self.masks])
        return {
            "rounds": self.rounds,
            "survival": {"entered": _short(entered), "original": _short(original)},
            "median_size": self._sizes(),
            "layers": {name: self._layer(name) for name in sorted(self.masks[0])},
        }

    def _sizes(self) -> dict[str, list[float]]:
        """The median |θ| of the newest weights, that of all others, and their ratio."""
        newest, others = [], []
        for old, masks, params in zip(self.masks, self.masks[1:], self.params[1:], strict=False):
            theta = _whole({name: params[name].abs() for name in masks})
            earlier, mask = _whole(old), _whole(masks)
            newest.append(float(theta[mask & ~earlier].median()))
            others.append(float(theta[mask & earlier].median()))
        ratios = torch.tensor(newest) / torch.tensor(others)
        return {"newest": _short(newest), "others": _short(others), "ratio": _short(ratios.tolist())}

    def _layer(self, name: str) -> dict[str, Any]:
        masks, thetas = [each[name] for each in self.masks], [each[name] for each in self.params]
        newest = [new & ~old for old, new in pairwise(masks)]
        return {
            "size": masks[0].numel(),
            "active_at_first": int(masks[0].sum()),
            "active": [int(mask.sum()) for mask in masks[1:]],
            "entered": [int(new.sum()) for new in newest],
            "left": [int((old & ~mask).sum()) for old, mask in pairwise(masks)],
            "newest_unmoved": [int((theta[new] == 0).sum()) for new, theta in zip(newest, thetas[1:], strict=False)],
            "newest_stayed": [int((new & mask).sum()) for new, mask in zip(newest, masks[2:], strict=False)],
            "movement": _short([(self.squares[name] / self.weights[name]) ** 0.5])[0],
        }


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


def shared_options() -> dict[str, Any]:
    """What all rows have: the study's options, but those of Sprout, which rows have themselves."""
    options = {name: value for name, value in dotted(read_study(STUDY)["options"]).items() if "sprout" not in name}
    del options["method"]
    return options | {"seed": 0, "rounds": ROUNDS, "eval_every": ROUNDS, "engine.kind": "native"}


def measure() -> dict[str, Any]:
    """The record of all runs."""
    shared, began = shared_options(), time.perf_counter()
    rows = {name: {"options": own, **watched(name, {**shared, **own})} for name, own in ROWS.items()}
    return {
        "command": "python scripts/mask_life.py",
        "commit": commit(),
        "device": device(feddst.configure(**shared).engine),
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - began, 1),
        "options": shared,
        "movement_rounds": FIRST,
        "rows": rows,
    }


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Write the picture: survival in four rows, density by layer, and movement by layer."""
    figure, rows = new_figure(), record["rows"]
    figure.set_size_inches(11.5, 7.6)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 1.2), hspace=0.05)
    above, below = parts
    panels = above.subplots(1, 4, sharey=True)
    for axes, (name, title) in zip(panels, survival_titles(rows).items(), strict=True):
        _draw_survival(axes, rows[name]["survival"], title)
    panels[0].set_ylabel("weights still in the mask [%]")
    panels[0].legend(loc="center right", frameon=False, fontsize=8.5)
    left, right = below.subplots(1, 2, width_ratios=(1.1, 1))
    _draw_density(left, rows["across"])
    _draw_movement(right, rows["sprout"], rows["across"], record["movement_rounds"])
    save_png(figure, path)


def survival_titles(rows: Mapping[str, Any]) -> dict[str, str]:
    """What survival shows in each row that is drawn."""
    gone = {name: f"{100 * (1 - rows[name]['survival']['entered'][0]):.0f} %" for name in ("sprout", "rare")}
    still = {name: f"{100 * unmoved(rows[name]):.0f} %" for name in gone}
    later = f"{100 * first_to_leave(rows['spared']):.0f} %"
    first = f"{100 * rows['feddst']['survival']['original'][-1]:.0f} %"
    return {
        "sprout": f"Sprout, every 10 rounds:\n{gone['sprout']} of what grows leaves at the next\n"
        f"change; {still['sprout']} has not moved by then",
        "rare": f"Sprout, every 50 rounds: with more\ntime {still['rare']} has not moved by then,\n"
        f"and {gone['rare']} leaves",
        "spared": f"Sprout, every 10 rounds: spared for\n50, {later} leaves as soon as it may",
        "feddst": f"FedDST: what grows stays, but little\ngrows: in the end {first} of its mask\nis as at the start",
    }


def first_to_leave(row: Mapping[str, Any]) -> float:
    """Of what has grown and was spared, the share that leaves at the first change at which it may."""
    shares = [1.0, *row["survival"]["entered"]]
    first = next(k for k, share in enumerate(shares) if share < 1)
    return 1 - float(shares[first])


def unmoved(row: Mapping[str, Any]) -> float:
    """The share of grown weights that are still 0 a round before the next change."""
    layers = row["layers"].values()
    return float(
        sum(sum(each["newest_unmoved"]) for each in layers) / sum(sum(each["entered"][:-1]) for each in layers)
    )


def _draw_survival(axes: "Axes", shares: Mapping[str, Sequence[float]], title: str) -> None:
    for key, colour, words in (("original", GREY, "there from the start"), ("entered", NEW, "grown at a change")):
        line = [100.0, *(100 * share for share in shares[key][: min(SHOWN, len(shares["entered"]))])]
        axes.plot(range(len(line)), line, "o-", color=colour, linewidth=1.8, markersize=3.5, label=words)
    axes.set_xlim(-0.3, SHOWN + 0.3)
    axes.set_ylim(0, 104)
    axes.set_xlabel("changes later")
    _tidy(axes, title)


def _draw_density(axes: "Axes", row: Mapping[str, Any]) -> None:
    rounds = [0, *row["rounds"]]
    for name, colour in LAYERS.items():
        layer = row["layers"][f"{name}.weight"]
        density = [100 * active / layer["size"] for active in (layer["active_at_first"], *layer["active"])]
        axes.plot(rounds, density, color=colour, linewidth=1.8, drawstyle="steps-post")
        axes.axhline(density[0], color=colour, linewidth=1, dashes=DASHES)
        where = ("axes fraction", "data")
        axes.annotate(name, (1, density[0]), (5, 0), where, "offset points", color=colour, va="center")
    axes.plot([], color=GREY, linewidth=1.8, label="Sprout across layers")
    axes.plot([], color=GREY, linewidth=1, dashes=DASHES, label="the others: as ERK has it")
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.62), frameon=False, fontsize=8.5)
    axes.set_yscale("log")
    axes.set_yticks(PERCENT, [f"{each}" for each in PERCENT])
    axes.minorticks_off()
    axes.set_ylim(1.4, 125)
    axes.set_xlim(0, rounds[-1])
    axes.set_xlabel("round")
    axes.set_ylabel("weights in the mask [% of the layer]")
    _tidy(axes, "Free to move between layers, weights leave fc1\nand fill all others")


def _draw_movement(axes: "Axes", within: Mapping[str, Any], across: Mapping[str, Any], rounds: int) -> None:
    pairs = ((-0.2, within, 1.0, "Sprout within layers"), (0.2, across, 0.4, "Sprout across layers"))
    for shift, row, strength, words in pairs:
        axes.bar([0], [0], color=GREY, alpha=strength, label=words)
        for place, (name, colour) in enumerate(LAYERS.items()):
            moved = 1000 * row["layers"][f"{name}.weight"]["movement"]
            top = (place + shift, moved)
            axes.bar(*top, 0.38, color=colour, alpha=strength)
            axes.annotate(f"{moved:.1f}", top, (0, 2), "data", "offset points", ha="center", fontsize=8.5)
    counts = [f"{name}\n{_active(within, name, rounds):,} → {_active(across, name, rounds):,}" for name in LAYERS]
    axes.set_xticks(range(len(LAYERS)), counts, fontsize=8.5)
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel(f"weights after round {rounds}: within → across layers", fontsize=9)
    axes.set_ylabel("movement of a weight in a round [1/1000]")
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, 1), frameon=False, fontsize=8.5)
    _tidy(axes, "Where weights are few, each of them moves far;\nwhere others join them, each moves less")


def _active(row: Mapping[str, Any], name: str, rounds: int) -> int:
    """How many weights a layer has after so many rounds."""
    layer = row["layers"][f"{name}.weight"]
    changes = sum(each <= rounds for each in row["rounds"])
    return int([layer["active_at_first"], *layer["active"]][changes])


def _tidy(axes: "Axes", title: str) -> None:
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize=9.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="draw the record that is there, without training")
    if not parser.parse_args().draw:
        RECORD.write_text(json.dumps(measure(), indent=1) + "\n")
        print(RECORD)
    draw(json.loads(RECORD.read_text()), PICTURE)
    print(PICTURE)


if __name__ == "__main__":
    main()
