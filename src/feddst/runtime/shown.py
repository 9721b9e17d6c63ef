"""A run's result for people: in a few lines, in a notebook, as a table, and as a picture."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from feddst.core import Metric
from feddst.errors import OptionError
from feddst.notebook import Fact, curve_svg, facts_html
from feddst.runtime.metrics import ACCURACY, MIB, Row
from feddst.runtime.wording import WAYS, counted, percent, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from feddst.runtime.session import Result

Against = Literal["upload", "round"]
"""What a picture has along its horizontal axis."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C5A2B", "#7B4FB5")
"""Okabe and Ito's palette, which colour-blind readers can tell apart, with a brown and a purple in place of its yellow,
which is too faint for lines: no table of the paper has more rows than there are colours."""
FEW_POINTS = 30
"""Lines with no more points than this have marks at them."""


def facts_of(result: "Result") -> tuple[str, list[Fact]]:
    """What came out, as a title and a few facts."""
    config, found = result.config, result.summary
    cap = " by the upload cap" if found.stopped_by == "cap" else ""
    state = f"finished{cap}" if result.finished else "stopped early"
    metric = found.metric
    best = f"best {metric.text(found.best)} in round {found.best_round}, final {metric.text(found.final)}"
    facts = [(metric.name, best if found.best == found.best else "not evaluated yet")]
    if found.final_personal is not None:
        facts.append(("personal", f"final {metric.text(found.final_personal)}"))
    facts.append(("sent", f"{size(8 * found.upload_bytes)} up, {size(8 * found.download_bytes)} down"))
    if found.density is not None:
        facts.append(("weights", f"{percent(found.density)} of the prunable ones are active"))
    if result.path is not None:
        facts.append(("in", str(result.path)))
    return f"Result of {config.method}, seed {config.seed}: {counted(len(result.rows), 'round')}, {state}", facts


def as_html(result: "Result") -> str:
    """The same with a curve, for a notebook."""
    curve = curve_svg(_points(result.rows, "round", result), f"{result.summary.metric.name} by round")
    return facts_html(*facts_of(result), below=curve)


def frame_of(rows: Sequence[Row]) -> "DataFrame":
    """Rows as a table of pandas, by round, with the columns of `metrics.jsonl`."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise OptionError("to_pandas needs pandas: pip install 'feddst[notebook]'") from None
    columns = [
        {name: value for name, value in row.as_dict().items() if name not in ("metric", "others")} for row in rows
    ]
    columns = [{**column, **row.others} for column, row in zip(columns, rows, strict=True)]
    numbers = [{name: math.nan if value is None else value for name, value in row.items()} for row in columns]
    return DataFrame(numbers).set_index("round")


def plot_of(result: "Result", against: Against, axes: "Axes | None") -> "Axes":
    """A line with the result's scores, on these axes or new ones."""
    if against not in ("upload", "round"):
        raise OptionError(f"against must be one of upload, round, got {against!r}")
    title = f"{result.config.method}, seed {result.config.seed}"
    if axes is None:
        axes = new_axes()
        tidy(axes, title, result.summary.metric)
    points = _points(result.rows, against, result)
    marker = "o" if len(points) <= FEW_POINTS else ""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    axes.plot(xs, ys, label=title, linewidth=1.8, marker=marker, markersize=3.5)
    axes.set_xlabel("round" if against == "round" else f"upload [MiB], {WAYS[result.config.accounting]}")
    return axes


def new_axes() -> "Axes":
    """Empty axes that a notebook or `matplotlib.pyplot.show` shows."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise OptionError("pictures need matplotlib: pip install 'feddst[notebook]'") from None
    _, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    axes.set_prop_cycle(color=COLOURS)
    return axes


def tidy(axes: "Axes", title: str, metric: Metric = ACCURACY) -> None:
    """What all pictures here share: scores upwards, few lines, the title at the left."""
    axes.set_ylabel(f"mean client {metric.heading}")
    axes.margins(y=0.08)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize=10, pad=20)


def _points(rows: Sequence[Row], against: Against, result: "Result") -> list[tuple[float, float]]:
    """The evaluations, scores as they are shown."""
    accounting = result.config.accounting
    return [
        (row.round if against == "round" else row.upload(accounting) / MIB, row.metric.shown(score))
        for row in rows
        if (score := row.score) is not None
    ]
