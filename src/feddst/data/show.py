"""Shows a federation: a table of the clients, and a picture of what each holds."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from feddst.data.federation import Federation
from feddst.data.partition import Indices
from feddst.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

NAMED_CLASSES = 6
LABELLED_CLASSES = 25
FEW_CLIENTS = 60
DARK = "#225ea8"
ACCENT = "#d95f0e"


def count_table(federation: Federation, max_rows: int) -> list[tuple[str, ...]]:
    """Rows of (client, training examples, test examples, classes with their counts), a heading first.

    Without classes there is no last column. If there are more than `max_rows` clients, a last row says how many were
    left out and what they hold.
    """
    counts, classes = federation.class_counts(), federation.dataset.classes
    rows: list[tuple[str, ...]] = [("client", "examples", "test examples", *(["classes"] if classes else []))]
    for client, count in enumerate(counts[:max_rows]):
        sizes = str(client), str(count.sum()), str(len(federation.partition.test[client]))
        rows.append((*sizes, _held(count, classes)) if classes else sizes)
    rest = counts[max_rows:]
    if len(rest):
        mean = f"{rest.sum() / len(rest):.1f}"
        last = (str(rest.sum()), "", f"{mean} examples each") if classes else (f"{rest.sum()}, {mean} each", "")
        rows.append((f"{len(rest)} more", *last))
    return rows


def save_picture(federation: Federation, path: Path) -> None:
    """Write a new PNG of the training examples of each client, and of each class at each client."""
    if path.exists():
        raise DataError(f"{path} exists already")
    figure = _draw(federation)
    try:
        figure.savefig(path, format="png", dpi=150)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None


def _held(count: Indices, classes: tuple[str, ...]) -> str:
    held = np.argsort(-count, kind="stable")[: np.count_nonzero(count)]
    named = [f"{classes[label]} ×{count[label]}" for label in held[:NAMED_CLASSES]]
    return ", ".join(named) + (f", {len(held) - NAMED_CLASSES} more" if len(held) > NAMED_CLASSES else "")


def _draw(federation: Federation) -> "Figure":
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise DataError("pictures need matplotlib: pip install feddst[report]") from None
    counts = federation.class_counts()
    classes = federation.dataset.classes
    if not classes:
        return _draw_sizes_alone(federation)
    figure = Figure(figsize=(11, 4 + 0.16 * min(len(classes), LABELLED_CLASSES)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 2.6), width_ratios=(60, 1))
    sizes = figure.add_subplot(grid[0, 0])
    heat = figure.add_subplot(grid[1, 0], sharex=sizes)
    _draw_sizes(sizes, counts.sum(1))
    sizes.tick_params(labelbottom=False, bottom=False)
    image = _draw_classes(heat, counts, classes)
    _draw_scale(figure, image, figure.add_subplot(grid[1, 1]))
    figure.align_ylabels([sizes, heat])
    figure.suptitle(federation.description or federation.dataset.name)
    return figure


def _draw_sizes_alone(federation: Federation) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw_sizes(axes, federation.class_counts().sum(1))
    axes.set_xlabel("client")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(federation.description or federation.dataset.name)
    return figure


def _draw_sizes(axes: "Axes", sizes: Indices) -> None:
    from matplotlib.ticker import StrMethodFormatter

    smallest, largest, mean = int(sizes.min()), int(sizes.max()), float(sizes.mean())
    few = len(sizes) <= FEW_CLIENTS
    axes.bar(np.arange(len(sizes)), sizes, width=0.85 if few else 1.0, color=DARK)
    axes.set_ylabel("training examples")
    axes.set_ylim(0, largest * 1.1)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.spines[["top", "right"]].set_visible(False)
    text = f"{smallest:,} examples at every client"
    if smallest < largest:
        axes.axhline(mean, color=ACCENT, linewidth=1.2)
        text = f"smallest {smallest:,}, mean {mean:,.1f} (line), largest {largest:,}"
    axes.set_title(text, loc="right", fontsize="small", color="#555555")


def _draw_classes(axes: "Axes", counts: Indices, classes: tuple[str, ...]) -> "AxesImage":
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import MaxNLocator

    largest = int(counts.max())
    # Where a few clients hold nearly all of a class, a linear scale would leave the others blank.
    uneven = largest > 10 * np.median(counts[counts > 0])
    norm = LogNorm(1, largest) if uneven else Normalize(0, largest)
    held = np.ma.masked_equal(counts.T, 0)
    image = axes.imshow(held, aspect="auto", cmap=_colours(), norm=norm, interpolation="nearest")
    axes.set_xlabel("client")
    axes.set_ylabel("class")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if len(classes) <= LABELLED_CLASSES:
        axes.set_yticks(range(len(classes)), classes)
        axes.hlines(np.arange(1, len(classes)) - 0.5, -0.5, len(counts) - 0.5, color="#d9d9d9", linewidth=0.6)
    if len(counts) <= FEW_CLIENTS:
        axes.vlines(np.arange(1, len(counts)) - 0.5, -0.5, len(classes) - 0.5, color="#d9d9d9", linewidth=0.6)
    return image


def _draw_scale(figure: "Figure", image: "AxesImage", scale: "Axes") -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure.colorbar(image, cax=scale, label="images of the class")
    scale.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if not isinstance(image.norm, LogNorm):
        scale.yaxis.set_major_locator(MaxNLocator(integer=True))


def _colours() -> "Colormap":
    """From a light tone, distinct from the white of no images, to a dark one."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["YlGnBu"](np.linspace(0.2, 1.0, 256)))
