"""Pictures of accuracy against upload."""

import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from feddst.experiment.comparison import Comparison, Curve, S
from feddst.experiment.metrics import MIB, Accounting
from feddst.experiment.storage import write_atomically
from feddst.experiment.wording import WAYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can tell apart; its yellow is too faint for lines."""
STYLES = ("-", "--", ":", "-.")
GREY = "#8a8a8a"
FEW_POINTS = 30
LABEL_GAP = 0.05


@dataclass(frozen=True)
class Band:
    """Mean, lowest and highest accuracy [%] over seeds at each evaluated round, with the mean upload [MiB]."""

    upload: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True)
class Picture:
    """What is drawn: a line with its name for each entry, and the caps; `shaded` if lines have a spread over seeds."""

    title: str
    lines: Sequence[tuple[str, Band]]
    accounting: Accounting
    caps: Sequence[float]
    shaded: bool


def accuracy_against_upload(comparison: Comparison, path: Path) -> None:
    """Write a PNG: for each entry the mean accuracy over seeds, with a band from the lowest to the highest."""
    config, seeds = comparison.config, len(comparison.config.seeds)
    spread = f"mean and range of {seeds} seeds" if seeds > 1 else f"seed {config.seeds[0]}"
    lines = [(label, band(comparison.of(label))) for label in config.methods]
    picture = Picture(f"{comparison.data}, {spread}", lines, config.base.accounting, config.caps, seeds > 1)
    draw(picture, path)


def draw(picture: Picture, path: Path) -> None:
    """Write the picture as a PNG."""
    figure = new_figure()
    _draw(figure, picture)
    save_png(figure, path)


def new_figure() -> "Figure":
    """An empty figure. Raises `ImportError` where there is no matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_png(figure: "Figure", path: Path) -> None:
    """Write a figure, replacing an older one in one step."""
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=150)
    write_atomically(path, png.getvalue())


def band(curves: Sequence[Curve[S]]) -> Band:
    """One entry's curves as one; a round counts with the seeds that have it."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for curve in curves:
        for row in curve.rows:
            if row.accuracy is not None:
                found[row.round].append((row.upload(curve.accounting) / MIB, 100 * row.accuracy))
    points = [np.array(found[r]) for r in sorted(found)]
    mean = np.array([each.mean(axis=0) for each in points]).reshape(-1, 2)
    low, high = np.array([each[:, 1].min() for each in points]), np.array([each[:, 1].max() for each in points])
    return Band(mean[:, 0], mean[:, 1], low, high)


def _draw(figure: "Figure", picture: Picture) -> None:
    axes = figure.add_subplot()
    ends: list[tuple[float, str, str]] = []
    for i, (label, line) in enumerate(picture.lines):
        if not len(line.mean):
            continue
        colour = COLOURS[i % len(COLOURS)]
        style = STYLES[i // len(COLOURS) % len(STYLES)]
        marker = "o" if len(line.mean) <= FEW_POINTS else ""
        axes.plot(line.upload, line.mean, style, color=colour, linewidth=1.8, marker=marker, markersize=3.5)
        if picture.shaded:
            axes.fill_between(line.upload, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
        ends.append((float(line.mean[-1]), label, colour))
    _set_up(axes, picture)
    name_lines(axes, ends)


def tidy(axes: "Axes", title: str) -> None:
    """What all pictures here share: percentages upwards, few lines, the title at the left."""
    axes.set_ylabel("mean client accuracy [%]")
    axes.margins(y=0.08)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize=10, pad=20)


def _set_up(axes: "Axes", picture: Picture) -> None:
    axes.set_xlabel(f"upload [MiB], {WAYS[picture.accounting]}")
    tidy(axes, picture.title)
    reach = axes.dataLim.x1 * 1.25 if axes.lines else 0.0
    caps = [cap for cap in picture.caps if cap * 1024 <= reach]
    axes.set_xlim(0, max([axes.get_xlim()[1], *(cap * 1024 for cap in caps)]))
    for cap in caps:
        axes.axvline(cap * 1024, color=GREY, linewidth=0.7, dashes=(4, 3), zorder=0)
        axes.annotate(
            f"{cap:g} GiB",
            (cap * 1024, 1),
            (0, 3),
            ("data", "axes fraction"),
            "offset points",
            color=GREY,
            fontsize=8,
            ha="center",
        )


def name_lines(axes: "Axes", ends: list[tuple[float, str, str]]) -> None:
    """Write each entry's name beside the end of its line, moved apart where lines end close together."""
    low, high = axes.get_ylim()
    ceiling = 1.0
    for accuracy, label, colour in sorted(ends, reverse=True):
        lines = label.split(":")
        half = LABEL_GAP * len(lines) / 2
        height = min((accuracy - low) / (high - low), ceiling - half)
        ceiling = height - half
        axes.annotate(
            "\n".join(lines),
            (1, height),
            (8, 0),
            "axes fraction",
            "offset points",
            color=colour,
            fontsize=9,
            va="center",
        )
