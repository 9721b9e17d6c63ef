"""A record as pictures: scores against upload, and for a sweep scores against the value."""

from pathlib import Path
from statistics import mean

import numpy as np

from feddst.runtime.shown import COLOURS, tidy
from feddst.studies.plots import (
    Picture,
    band,
    draw,
    name_lines,
    new_figure,
    save_png,
    spread_in_words,
    spread_of,
)
from feddst.studies.reproduce.record import Record
from feddst.studies.reproduce.table import settings

SWEEP = "sweep.png"
FAR, MARGIN = 20.0, 2.0
"""In points: how far below the best a row may be to be shown in full, and the margin below the lowest of those."""


def draw_figures(record: Record, folder: Path) -> list[str]:
    """Write the pictures and return their names. Raises `ImportError` where there is no matplotlib."""
    lines = [(row.title, band(row.runs)) for row in record.rows]
    picture = Picture(
        _title(record), lines, record.accounting, record.caps, record.seeds > 1, _worst(record), record.metric
    )
    curves = curves_of(record)
    draw(picture, folder / curves)
    if not record.symbol:
        return [curves]
    _draw_sweep(record, folder / SWEEP)
    return [curves, SWEEP]


def curves_of(record: Record) -> str:
    """The name of the picture of scores against upload."""
    return f"{record.metric.name}.png"


def _draw_sweep(record: Record, path: Path) -> None:
    """For each cap a line over the values, with a band of the seeds' spread."""
    figure = new_figure()
    axes = figure.add_subplot()
    ends: list[tuple[float, str, str]] = []
    for cap, colour in zip(record.caps, COLOURS, strict=False):
        points = [(row.value, list(row.best(cap).values())) for row in record.rows]
        known = [(value, scores) for value, scores in points if value is not None and scores]
        if not known:
            continue
        values, scores = [value for value, _ in known], [found for _, found in known]
        axes.plot(values, [mean(found) for found in scores], "o-", color=colour, linewidth=1.8, markersize=3.5)
        low, high = np.array([spread_of(np.array(found)) for found in scores]).T
        axes.fill_between(values, low, high, color=colour, alpha=0.18, linewidth=0)
        ends.append((mean(scores[-1]), f"{cap:g} GiB", colour))
    every = [row.value for row in record.rows if row.value is not None]
    if min(every) * 50 < max(every):
        axes.set_xscale("log")
    axes.set_xticks(every, [f"{value:g}" for value in every])
    axes.minorticks_off()
    axes.set_xlabel(record.symbol)
    tidy(axes, _title(record), record.metric)
    name_lines(axes, ends)
    save_png(figure, path)


def _worst(record: Record) -> float | None:
    """Just beyond the rows' means at the first cap, without rows far from the best, which would flatten all.

    None where scores are not in per cent: how far is far is not known then.
    """
    if not record.metric.percent:
        return None
    merit = record.metric.merit
    found = [list(row.best(min(record.caps)).values()) for row in record.rows] if record.caps else []
    means = [merit(mean(scores)) for scores in found if scores]
    near = [score for score in means if score > max(means) - FAR]
    return merit(min(near) - (max(near) - min(near)) - MARGIN) if near else None


def _title(record: Record) -> str:
    spread = spread_in_words(record.seeds) if record.seeds > 1 else "one seed"
    return f"{record.data}\n{settings(record)}; {spread}"
