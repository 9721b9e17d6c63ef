"""Figures for a two-column paper: one column wide, small type, no title, and told apart in grey too."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from feddst.core.metric import Metric
from feddst.errors import CheckpointError, OptionError
from feddst.report.content import collect
from feddst.report.curves import Axis, against, axes
from feddst.report.entries import Entry
from feddst.report.life import MaskLife, mask_life
from feddst.report.sources import Paths, as_paths
from feddst.report.standings import metric_of
from feddst.report.traffic import traffic
from feddst.runtime.metrics import ACCURACY
from feddst.runtime.shown import COLOURS
from feddst.runtime.storage import write_atomically
from feddst.studies.plots import STYLES, Band

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FigureFormat = Literal["png", "svg", "pdf"]
FOLDER = "report-figures"
MARKER = "feddst report"
"""A figure carries this in its metadata, and may then be replaced."""
WIDTH, HEIGHT = 3.3, 2.3
"""Inches: a column of a two-column page."""
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": MARKER,
}
"""Type 42 is TrueType, which journals ask for; in SVG, which cannot carry fonts, letters are outlines."""
PARTS = (
    ("values", "#4d4d4d", ""),
    ("mask", "#b0b0b0", "////"),
    ("header", "#ffffff", "...."),
    ("other", "#8a8a8a", ""),
)
NAMES = {"values": "values", "mask": "masks", "header": "headers", "other": "values and headers"}
AXES = {"measured": "upload", "formula": "upload-by-formula", "rounds": "rounds"}
"""What scores are drawn against, and how the name of the file ends."""
DPI = 300
LETTERS = 58
"""So many letters of a legend are as wide as a column."""
LINE = 0.15
"""Inches that a line of a legend takes."""
FAR, SEEN = 20.0, 0.75
"""Points below the best within which lines decide where an axis begins; share of all points that must stay in sight."""


def write_figures(paths: Paths, out: str | Path | None = None, format: FigureFormat = "pdf") -> list[Path]:
    """Write figures on runs into the directory `out`, and return where they are.

    Without `out` they go into `report-figures` in the one directory given, or here. Figures of an earlier report are
    replaced; any other file of the same name is left alone and the call refused.
    """
    _need_matplotlib()
    given = as_paths(paths)
    folder = figures_path(given, out)
    _, entries = collect(given)
    wanted = figures(entries)
    targets = [folder / f"{name}.{format}" for name in wanted]
    refuse_foreign(folder, targets)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot create {folder}: {error.strerror or error}") from None
    with _styled():
        for target, draw in zip(targets, wanted.values(), strict=True):
            _save(draw(), target, format)
    return targets


def figures_path(paths: Sequence[Path], out: str | Path | None) -> Path:
    """Where figures go: into `out`, else into a directory in the only path, or here."""
    if out is not None:
        return Path(out)
    return paths[0] / FOLDER if len(paths) == 1 else Path(FOLDER)


def figures(entries: Sequence[Entry]) -> dict[str, Callable[[], "Figure"]]:
    """What can be drawn of these entries, by the name of its file."""
    found: dict[str, Callable[[], Figure]] = {}
    metric = metric_of(entries)
    for axis in axes(entries):
        if axis.key in AXES and any(entry.evaluated for entry in entries):
            found[f"{metric.name}-{AXES[axis.key]}"] = partial(_scores, entries, axis, metric)
    if any(entry.ends for entry in entries):
        found["bytes"] = partial(_bytes, entries)
    for entry, life in _moving(entries):
        found[_unused(f"masks-{_file_name(entry.label)}", found)] = partial(_masks, life)
    if not found:
        raise OptionError("RUN: no round has been played yet, so there is nothing to draw")
    return found


def refuse_foreign(folder: Path, targets: Sequence[Path]) -> None:
    """Raise if a file to be written exists and is not a figure of ours."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"out: {folder} exists already and is not a directory, which figures need")
    for target in targets:
        if os.path.lexists(target) and not (target.is_file() and MARKER.encode() in target.read_bytes()):
            raise CheckpointError(
                f"out: {target} exists already and is not a figure of feddst: choose another directory"
            )


def _moving(entries: Sequence[Entry]) -> Iterator[tuple[Entry, MaskLife]]:
    """Entries whose masks move."""
    for entry in entries:
        life = mask_life(entry)
        if life is not None and any(step.entered or step.left for layer in life.layers for step in layer.steps):
            yield entry, life


def _file_name(label: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "+-=._" else "-" for letter in label)


def _unused(name: str, used: Iterable[str]) -> str:
    """The name, or the name with the first free number; on some disks names that differ in case alone are the same."""
    taken = {each.lower() for each in used}
    numbered = (f"{name}-{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each.lower() not in taken)


def _need_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise OptionError("format: figures need matplotlib: pip install 'feddst[report]'")


@contextmanager
def _styled() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def _figure(height: float = HEIGHT) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: "Figure", path: Path, format: FigureFormat) -> None:
    dates = {"png": {"Software": MARKER}, "svg": {"Creator": MARKER, "Date": None}}
    metadata = dates.get(format, {"Creator": MARKER, "CreationDate": None})
    content = io.BytesIO()
    figure.savefig(content, format=format, dpi=DPI, metadata=metadata)
    write_atomically(path, content.getvalue())


def _scores(entries: Sequence[Entry], axis: Axis, metric: Metric) -> "Figure":
    bands = {i: found for i, entry in enumerate(entries) if len((found := against(entry, axis)).mean)}
    columns = _columns([entries[i].label for i in bands])
    figure = _figure(HEIGHT + LINE * (-(-len(bands) // columns) - 1))
    axes_ = figure.add_subplot()
    for i, found in bands.items():
        entry = entries[i]
        colour, style = COLOURS[i % len(COLOURS)], tuple(STYLES)[i % len(STYLES)]
        axes_.plot(found.upload, found.mean, style, color=colour, linewidth=1.2, label=entry.label)
        if len(entry.runs) > 1:
            axes_.fill_between(found.upload, found.low, found.high, color=colour, alpha=0.2, linewidth=0)
    axes_.set_xlabel(axis.label)
    axes_.set_ylabel(f"mean client {metric.heading}")
    axes_.set_xlim(left=0)
    worst = worst_shown(list(bands.values()), metric)
    if metric.higher_is_better:
        axes_.set_ylim(bottom=worst)
    else:
        axes_.set_ylim(top=worst)
    if len(bands) > 1:
        # Above the picture, where no line can be under them.
        figure.legend(loc="outside upper left", ncols=columns, frameon=False, handlelength=2.2, columnspacing=1.2)
    return figure


def _columns(labels: Sequence[str]) -> int:
    """How many names fit beside each other."""
    longest = max((len(label) for label in labels), default=0)
    return max(1, min(len(labels), LETTERS // (longest + 5)))


def worst_shown(bands: Sequence[Band], metric: Metric = ACCURACY) -> float | None:
    """Where the axis of scores may begin without hiding much of the lines; None: at the worst of them.

    That is beyond the lines that end near the best, if three quarters of all points are better. Where scores are not
    in per cent, a hundredth of what they range over counts as a point.
    """
    points = metric.merit(1.0) * np.concatenate([found.mean for found in bands]) if bands else np.zeros(0)
    point = 1.0 if metric.percent else float(np.ptp(points)) / 100 if len(points) else 0.0
    if not len(points) or not point:
        return None
    ends = [metric.merit(float(found.mean[-1])) for found in bands]
    near = [end for end in ends if end > max(ends) - FAR * point]
    low = min(near) - max(2.0 * point, 2 * (max(near) - min(near)))
    return metric.merit(low) if (points > low).mean() >= SEEN else None


def _bytes(entries: Sequence[Entry]) -> "Figure":
    """Bars of bytes up and down, in shades and hatches that grey print keeps apart."""
    shown = [(entry.label, traffic(entry)) for entry in entries if entry.ends]
    largest = max(parts.total for _, found in shown for parts in (found.up, found.down))
    unit, scale = ("GiB", 2**30) if largest >= 2**31 else ("MiB", 2**20)
    figure = _figure(0.75 + 0.42 * len(shown))
    axes_ = figure.add_subplot()
    places: list[float] = []
    words: list[str] = []
    for i, (label, found) in enumerate(shown):
        for k, (way, parts) in enumerate((("↑", found.up), ("↓", found.down))):
            place, start = i + 0.38 * k, 0.0
            for name, colour, hatch in PARTS:
                size = getattr(parts, name) / scale
                if size:
                    axes_.barh(
                        place, size, 0.34, start, color=colour, hatch=hatch, edgecolor="black", linewidth=0.4,
                        label=NAMES[name],
                    )  # fmt: skip
                start += size
            places.append(place)
            words.append(f"{label} {way}")
    axes_.set_yticks(places, words)
    axes_.invert_yaxis()
    axes_.tick_params(axis="y", length=0)
    axes_.set_xlabel(f"measured bytes [{unit}]")
    handles, labels = axes_.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(unique.values(), unique.keys(), loc="outside upper left", ncols=3, frameon=False)
    return figure


def _masks(life: MaskLife) -> "Figure":
    """For each layer the share of its active weights that entered and left, by round."""
    layers = [layer for layer in life.layers if any(step.entered or step.left for step in layer.steps)]
    figure = _figure(0.5 + 0.75 * len(layers))
    drawn = figure.subplots(len(layers), 1, sharex=True, squeeze=False)[:, 0]
    for layer, axes_ in zip(layers, drawn, strict=True):
        rounds = [step.round for step in layer.steps]
        entered = [100 * step.entered / max(1, step.active) for step in layer.steps]
        left = [-100 * step.left / max(1, step.active) for step in layer.steps]
        wide = 0.7 * max(1.0, (rounds[-1] - rounds[0]) / max(8, len(rounds)))
        axes_.bar(rounds, entered, wide, color=COLOURS[0], label="enter")
        axes_.bar(rounds, left, wide, color=COLOURS[4], hatch="////", edgecolor="black", linewidth=0.3, label="leave")
        axes_.axhline(0, color="black", linewidth=0.6)
        axes_.set_ylabel(layer.name.removesuffix(".weight"))
        axes_.margins(y=0.15)
    drawn[-1].set_xlabel("round")
    figure.align_ylabels()
    figure.supylabel("share of active weights [%]", fontsize=8)
    handles, labels = drawn[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False)
    return figure
