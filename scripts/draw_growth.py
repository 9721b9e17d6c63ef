"""Draws the studies of networks that grow twice: against rounds, where most lines lie close, and against upload.

    python scripts/draw_growth.py [FILE]

One PNG with a row for each data set, from `results/growth-mnist` and `results/growth-cifar10`: the best accuracy so
far, mean over seeds. Colours are sparsities, styles are kinds of mask. Needs feddst[report].
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from feddst.runtime.metrics import MIB
from feddst.runtime.shown import COLOURS, tidy
from feddst.studies.plots import new_figure, save_png
from feddst.studies.reproduce.record import RecordedRow, load_record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
DRAWN = {"mnist": ("MNIST", (90.0, 99.0), 0.1), "cifar10": ("CIFAR-10", (25.0, 60.0), 0.3)}
"""The data sets, and of each the accuracies [%] that are shown, and the least upload [MiB]."""
LEVELS = {"80": COLOURS[0], "90": COLOURS[1], "95": COLOURS[2]}
KINDS = {"erk": ("RandomMask", "--"), "even": ("RandomMask, equally many", ":"), "grow": ("Sprout", "-")}


def means(row: RecordedRow) -> tuple[list[int], Sequence[float], Sequence[float]]:
    """Rounds, uploads [MiB] and best accuracies [%], means over seeds, as far as all seeds go."""
    length = min(len(run.rows) for run in row.runs)
    best = [np.maximum.accumulate([100 * point.score for point in run.rows[:length]]) for run in row.runs]
    sent = [[point.upload("measured") / MIB for point in run.rows[:length]] for run in row.runs]
    rounds = [point.round for point in row.runs[0].rows[:length]]
    return rounds, np.mean(sent, axis=0).tolist(), np.mean(best, axis=0).tolist()


def draw_pair(by_round: "Axes", by_upload: "Axes", data: str) -> None:
    """One data set."""
    title, shown, least = DRAWN[data]
    record = load_record(ROOT / f"results/growth-{data}")
    for level, colour in LEVELS.items():
        for kind, (name, style) in KINDS.items():
            row = record.row(f"{kind}-{level}")
            assert row is not None
            rounds, sent, best = means(row)
            label = f"{name}, S = 0.{level.rstrip('0')}"
            by_round.plot(rounds, best, style, color=colour, linewidth=1.5)
            by_upload.plot(sent, best, style, color=colour, linewidth=1.5, label=label)
    for axes, word in ((by_round, "rounds"), (by_upload, "upload [MiB], measured")):
        axes.set_xscale("log")
        tidy(axes, f"{title}, for the same {word.split()[0]}")
        axes.set_ylim(*shown)
        axes.set_xlabel(word)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    by_round.set_xlim(left=20)
    by_upload.set_xlim(left=least)


def draw(path: Path) -> None:
    """Write the picture."""
    figure = new_figure()
    figure.set_size_inches(10, 8)
    panels = figure.subplots(2, 2)
    for (by_round, by_upload), data in zip(panels, DRAWN, strict=True):
        draw_pair(by_round, by_upload, data)
    figure.legend(*panels[0][1].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    save_png(figure, path)


if __name__ == "__main__":
    made = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/growth.png"
    draw(made)
    print(made)
