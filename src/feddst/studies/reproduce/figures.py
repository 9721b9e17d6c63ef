"""A record as pictures: accuracy against upload, and for a sweep accuracy against the value."""

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

CURVES = "accuracy.png"
SWEEP = "sweep.png"
FAR, MARGIN = 20.0, 2.0
"""In points: how far below the best a row may be to be shown in full, and the margin below the lowest of those."""


def draw_figures(record: Record, folder: Path) -> list[str]:
    """Write the pictures and return their names. Raises `ImportError` where there is no matplotlib."""
    lines = [(row.title, band(row.runs)) for row in record.rows]
    picture = Picture(_title(record), lines, record.accounting, record.caps, record.seeds > 1, _floor(record))
    draw(picture, folder / CURVES)
    if not record.symbol:
        return [CURVES]
    _draw_sweep(record, folder / SWEEP)
    return [CURVES, SWEEP]


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
    tidy(axes, _title(record))
    name_lines(axes, ends)
    save_png(figure, path)


def _floor(record: Record) -> float | None:
    """Just below the rows' means at the first cap, without rows far below the best, which would flatten all."""
    found = [list(row.best(min(record.caps)).values()) for row in record.rows] if record.caps else []
    means = [mean(scores) for scores in found if scores]
    near = [score for score in means if score > max(means) - FAR]
    return min(near) - (max(near) - min(near)) - MARGIN if near else None


def _title(record: Record) -> str:
    spread = spread_in_words(record.seeds) if record.seeds > 1 else "one seed"
    return f"{record.data}\n{settings(record)}; {spread}"
