"""Draws accuracy against bytes, from one MiB to the paper's largest cap: the thrifty preset, our own tables, the paper.

    python scripts/draw_thrift.py [FOLDER]

For each data set with a record of its `thrifty` study one PNG, `thrift-mnist.png` or `thrift-cifar10.png`: the best
accuracy so far, mean over seeds, against measured upload, and the paper's points from its Tables 1 and 2. Sprout in
float32 and the RandomMask that it is compared with are from their own study. Needs feddst[report].
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feddst.runtime.metrics import MIB
from feddst.runtime.presets import TABLES
from feddst.runtime.shown import tidy
from feddst.studies.plots import GREY, looks_of, name_lines, new_figure, save_png
from feddst.studies.reproduce.paper import PAPER
from feddst.studies.reproduce.record import RECORD, Record, RecordedRow, load_record

ROOT = Path(__file__).parents[1]
DRAWN = {"mnist": ("table1", "table1-paper"), "cifar10": ("table2", "table2-paper")}
"""For each data set the paper's table, and the record of it."""
PLAIN = ("fedavgm", "feddst")
"""The rows of a table that are drawn."""
GROWN = ("sprout-80", "randommask-80")
"""The rows that are drawn of Sprout's own study."""
MARKERS = {"feddst": "D", "randommask": "s"}
"""The paper's points, and how they are marked."""
BELOW = 10.0
"""Points of accuracy that are shown below the lowest of them."""
FIRST_MIB = 1.0
POINTS = 400

Line = tuple[NDArray[np.float64], NDArray[np.float64]]


def best_so_far(row: RecordedRow) -> Line | None:
    """Uploads [MiB], even in their logarithm, and the mean over seeds of the best accuracy [%] under each.

    Of runs that have been evaluated; None if there is no upload at which all of them have.
    """
    runs = [run for run in row.runs if run.rows]
    if not runs:
        return None
    ends = [run.rows[-1].upload("measured") / MIB for run in runs]
    uploads = np.geomspace(FIRST_MIB, min(ends), POINTS)
    lines = []
    for run in runs:
        sent = np.array([point.upload("measured") / MIB for point in run.rows])
        best = np.maximum.accumulate([100 * point.score for point in run.rows])
        at = np.searchsorted(sent, uploads, side="right") - 1
        lines.append(np.where(at >= 0, best[at], np.nan))
    found = np.array(lines)
    known = ~np.isnan(found).any(axis=0)
    return (uploads[known], found[:, known].mean(axis=0)) if known.any() else None


def lines_of(thrifty: Record, grown: Record, plain: Record) -> Iterator[tuple[str, Line]]:
    """What is drawn, by name; rows that have nothing to show yet are left out."""
    rows = [(row.title, row) for row in thrifty.rows]
    again = f"Table {plain.target.removeprefix('table')} made again"
    for record, names, words in ((grown, GROWN, "float32"), (plain, PLAIN, again)):
        rows += [(f"{row.title}, {words}", row) for name in names if (row := record.row(name)) is not None]
    for name, row in rows:
        if (line := best_so_far(row)) is not None:
            yield name, line


def draw(data: str, path: Path) -> None:
    """Write one data set's picture."""
    table, plain = DRAWN[data]
    thrifty, grown, tables = (
        load_record(ROOT / "results" / name) for name in (f"thrifty-{data}", f"sprout-{data}", plain)
    )
    lines = list(lines_of(thrifty, grown, tables))
    figure = new_figure(name for name, _ in lines)
    axes = figure.add_subplot()
    ends: list[tuple[float, str, str]] = []
    for (_, (uploads, best)), (name, style, colour) in zip(lines, looks_of(name for name, _ in lines), strict=True):
        axes.plot(uploads, best, style, color=colour, linewidth=1.8)
        ends.append((float(best[-1]), name, colour))
    [caps] = [one.caps for one in TABLES if one.name == table]
    said = {name: PAPER[table][name] for name in MARKERS}
    for name, cells in said.items():
        axes.errorbar(
            [1024 * cap for cap in caps],
            [cell.mean for cell in cells],
            [cell.spread for cell in cells],
            fmt=MARKERS[name],
            color=GREY,
            markersize=4,
            linewidth=0.9,
            capsize=2,
            label=f"{'FedDST' if name == 'feddst' else 'RandomMask'} in the paper",
        )
    axes.set_xscale("log")
    axes.set_ylim(min(cell.mean for cells in said.values() for cell in cells) - BELOW, min(100.0, axes.get_ylim()[1]))
    axes.set_xlim(FIRST_MIB, 1024 * max(caps) * 1.3)
    axes.set_xlabel("upload [MiB], measured (the paper's points: by its formula)")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncol=len(said), frameon=False, fontsize=8)
    tidy(axes, f"{tables.data}\nbest accuracy so far, mean over seeds")
    name_lines(axes, ends)
    save_png(figure, path)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    for each in DRAWN:
        if (ROOT / f"results/thrifty-{each}" / RECORD).is_file():
            draw(each, folder / f"thrift-{each}.png")
            print(folder / f"thrift-{each}.png")
