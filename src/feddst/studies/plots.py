"""Pictures of scores, such as accuracy, against upload."""

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from feddst.core.metric import Metric
from feddst.runtime.metrics import ACCURACY, MIB, Accounting, is_known
from feddst.runtime.shown import COLOURS, FEW_POINTS, new_axes, tidy
from feddst.runtime.storage import write_atomically
from feddst.runtime.wording import WAYS
from feddst.studies.comparison import Comparison, Curve, S

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = {"-": "", "--": " (dashed)", ":": " (dotted)", "-.": " (dashes and dots)"}
"""Line styles, and what the names of their lines end with."""
GREY = "#8a8a8a"
LABEL_GAP = 0.05
APART = 0.02
"""Seeds whose uploads in a round differ by more than this share of the largest are compared by upload."""
GRID = 200
MANY_SEEDS = 5
"""From this many seeds on, a band leaves out the lowest and the highest quarter."""
WIDE = 50
"""The axis is logarithmic if the largest cap is at least this many times the smallest."""


@dataclass(frozen=True)
class Band:
    """Mean score over seeds, as it is shown, at each evaluated round, its spread, and the mean upload [MiB]."""

    upload: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True)
class Picture:
    """What is drawn: a line with its name for each entry, and the caps; `shaded` if lines have a spread over seeds.

    Scores beyond `worst` are left out; None: none are.
    """

    title: str
    lines: Sequence[tuple[str, Band]]
    accounting: Accounting
    caps: Sequence[float]
    shaded: bool
    worst: float | None = None
    metric: Metric = ACCURACY


def score_against_upload(comparison: Comparison, path: Path) -> None:
    """Write a PNG: for each entry the mean score over seeds, with a band of their spread."""
    draw(picture_of(comparison), path)


def plot(comparison: Comparison) -> "Axes":
    """The same picture on axes that a notebook or `matplotlib.pyplot.show` shows."""
    axes = new_axes()
    _draw(axes, picture_of(comparison))
    return axes


def picture_of(comparison: Comparison) -> Picture:
    """What is drawn of a comparison; entries without a run yet have no line."""
    config, seeds = comparison.config, len(comparison.config.seeds)
    spread = spread_in_words(seeds) if seeds > 1 else f"seed {config.seeds[0]}"
    lines = [(label, band(comparison.of(label))) for label in config.methods]
    return Picture(
        f"{comparison.data}, {spread}",
        lines,
        config.base.accounting,
        config.caps,
        seeds > 1,
        metric=comparison.metric,
    )


def draw(picture: Picture, path: Path) -> None:
    """Write the picture as a PNG."""
    figure = new_figure(label for label, line in picture.lines if len(line.mean))
    _draw(figure.add_subplot(), picture)
    save_png(figure, path)


def new_figure(names: Iterable[str] = ()) -> "Figure":
    """An empty figure, tall enough for these names. Raises `ImportError` where there is no matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8 * _taller(names)), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_png(figure: "Figure", path: Path) -> None:
    """Write a figure, replacing an older one in one step."""
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=150)
    write_atomically(path, png.getvalue())


def band(curves: Sequence[Curve[S]]) -> Band:
    """One entry's curves, combined over seeds.

    A round's mean is over the seeds that have it. If seeds upload different amounts in a round, curves are combined by
    upload instead, as far as all of them go.
    """
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for curve in curves:
        for row in curve.rows:
            if is_known(row.score):
                found[row.round].append((row.upload(curve.accounting) / MIB, row.metric.shown(row.score)))
    points = [np.array(found[r]) for r in sorted(found)]
    if any(np.ptp(each[:, 0]) > APART * each[:, 0].max() for each in points):
        return _band_by_upload(curves)
    mean = np.array([each.mean(axis=0) for each in points]).reshape(-1, 2)
    spreads = np.array([spread_of(each[:, 1]) for each in points]).reshape(-1, 2)
    return Band(mean[:, 0], mean[:, 1], spreads[:, 0], spreads[:, 1])


def _band_by_upload(curves: Sequence[Curve[S]]) -> Band:
    """Curves combined by upload, interpolated linearly at even distances."""
    lines = []
    for curve in curves:
        seen = [
            (row.upload(curve.accounting) / MIB, row.metric.shown(row.score))
            for row in curve.rows
            if is_known(row.score)
        ]
        if seen:
            lines.append(np.array(seen))
    grid = np.linspace(max(line[0, 0] for line in lines), min(line[-1, 0] for line in lines), GRID)
    values = np.array([np.interp(grid, line[:, 0], line[:, 1]) for line in lines])
    low, high = spread_of(values)
    return Band(grid, values.mean(axis=0), low, high)


def spread_of(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lower and upper end of the spread of seeds, along the first axis, as `spread_in_words` says."""
    share = 0.25 if len(values) >= MANY_SEEDS else 0.0
    return np.quantile(values, share, axis=0), np.quantile(values, 1 - share, axis=0)


def spread_in_words(seeds: int) -> str:
    """What lines and bands over so many seeds show."""
    return f"mean and {'middle half' if seeds >= MANY_SEEDS else 'range'} of {seeds} seeds"


def _draw(axes: "Axes", picture: Picture) -> None:
    ends: list[tuple[float, str, str]] = []
    looks = looks_of(label for label, _ in picture.lines)
    for (_, line), (label, style, colour) in zip(picture.lines, looks, strict=True):
        if not len(line.mean):
            continue
        marker = "o" if len(line.mean) <= FEW_POINTS else ""
        axes.plot(line.upload, line.mean, style, color=colour, linewidth=1.8, marker=marker, markersize=3.5)
        if picture.shaded:
            axes.fill_between(line.upload, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
        ends.append((float(line.mean[-1]), label, colour))
    _set_up(axes, picture)
    name_lines(axes, ends)


def looks_of(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """What to call each line, its style and its colour: lines after the last colour say how they are drawn."""
    for name, (style, colour) in zip(names, cycle(product(STYLES, COLOURS)), strict=False):  # looks have no end
        yield name + STYLES[style], style, colour


def _set_up(axes: "Axes", picture: Picture) -> None:
    axes.set_xlabel(f"upload [MiB], {WAYS[picture.accounting]}")
    tidy(axes, picture.title, picture.metric)
    if picture.worst is not None and picture.metric.higher_is_better:
        top = max(float(line.high.max()) for _, line in picture.lines if len(line.high))
        axes.set_ylim(picture.worst, top + 0.04 * (top - picture.worst))
    elif picture.worst is not None:
        bottom = min(float(line.low.min()) for _, line in picture.lines if len(line.low))
        axes.set_ylim(bottom - 0.04 * (picture.worst - bottom), picture.worst)
    reach = axes.dataLim.x1 * 1.25 if axes.lines else 0.0
    caps = [cap for cap in picture.caps if cap * 1024 <= reach]
    axes.set_xlim(0, max([axes.get_xlim()[1], *(cap * 1024 for cap in caps)]))
    if caps and max(caps) >= WIDE * min(caps):
        axes.set_xscale("log")
        axes.set_xlim(left=512 * min(caps))
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
    named = sorted(ends, reverse=True)
    wanted = [(score - low) / (high - low) for score, _, _ in named]
    for (_, label, colour), height in zip(named, _spread_out(wanted, [label for _, label, _ in named]), strict=True):
        axes.annotate(
            label.replace(":", "\n"),
            (1, height),
            (8, 0),
            "axes fraction",
            "offset points",
            color=colour,
            fontsize=9,
            va="center",
        )


def _taller(names: Iterable[str]) -> float:
    """How many times as tall as usual a picture must be for these names to stand below each other."""
    return max(1.0, LABEL_GAP * sum(1 + name.count(":") for name in names))


def _spread_out(wanted: list[float], labels: list[str]) -> list[float]:
    """Heights for labels from the top down, near those wanted: none over another, and none below the picture."""
    gap = LABEL_GAP / _taller(labels)
    halves = [gap * (1 + label.count(":")) / 2 for label in labels]
    heights: list[float] = []
    ceiling = 1.0
    for height, half in zip(wanted, halves, strict=True):
        heights.append(min(height, ceiling - half))
        ceiling = heights[-1] - half
    ground = 0.0
    for i in reversed(range(len(heights))):
        heights[i] = max(heights[i], ground + halves[i])
        ground = heights[i] + halves[i]
    return heights
