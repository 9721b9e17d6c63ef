"""Scores against what they cost: upload, rounds and compute, as bands over seeds, thin enough for a page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feddst.core.metric import Metric
from feddst.report.entries import Entry
from feddst.runtime.metrics import MIB, Accounting, Row
from feddst.runtime.wording import WAYS
from feddst.studies.comparison import Curve
from feddst.studies.plots import Band, band
from feddst.studies.reproduce.record import Point

POINTS = 240
"""Curves of more evaluations are thinned out to about so many."""

Measure = Callable[[Row | Point], float]


@dataclass(frozen=True)
class Axis:
    """Something that scores are drawn against; `unit` is worth `scale` of what `measure` gives."""

    key: str
    title: str
    unit: str
    scale: float
    measure: Measure

    @property
    def label(self) -> str:
        return f"{self.title} [{self.unit}]" if self.unit else self.title


@dataclass(frozen=True)
class Placed:
    """An evaluation as `band` takes it, with any measure in the place of the upload."""

    round: int
    score: float | None
    place: float
    metric: Metric

    def upload(self, accounting: Accounting) -> int:
        return round(self.place * MIB)


def axes(entries: Sequence[Entry]) -> list[Axis]:
    """The axes that all these runs have: a measure that a run lacks is left out."""
    known = [
        Axis("measured", "upload, measured", *_bytes(entries, sent), sent),
        Axis("formula", f"upload, {formula_in_words(entries)}", *_bytes(entries, by_formula), by_formula),
        Axis("rounds", "rounds", "", 1.0, lambda row: float(row.round)),
        Axis("compute", "training compute of all clients, sparse", *_flops(entries, flops), flops),
    ]
    return [axis for axis in known if _everywhere(entries, axis.measure)]


def sent(row: Row | Point) -> float:
    """Bytes uploaded so far, as they were sent."""
    return float(row.upload_bytes)


def by_formula(row: Row | Point) -> float:
    """Bytes uploaded so far, by formula."""
    return row.upload_bits / 8


def flops(row: Row | Point) -> float:
    """FLOPs of all clients so far, without those of masked weights; 0 where not counted."""
    return float(row.flops_sparse) if isinstance(row, Row) else 0.0


def formula_in_words(entries: Sequence[Entry]) -> str:
    """Which formula the runs' bits follow."""
    ways = {run.accounting for entry in entries for run in entry.runs}
    return WAYS["published"] if ways == {"published"} else WAYS["paper"]


def against(entry: Entry, axis: Axis) -> Band:
    """An entry's scores over seeds against an axis, in the axis's unit: `Band.upload` is the place there."""
    curves = [
        Curve(entry.label, run.seed, tuple(_placed(row, axis) for row in run.rows), run.path) for run in entry.runs
    ]
    found = band(curves)
    if len(found.upload) > 1 and found.upload[0] >= found.upload[-1]:
        # A seed that has just begun ends before another's first evaluation: it cannot be part of a band yet.
        found = band([max(curves, key=lambda curve: curve.rows[-1].place if curve.rows else 0.0)])
    return thinned(found)


def thinned(found: Band, limit: int = POINTS) -> Band:
    """A band of about `limit` points: half of them at even distances, half closer together at the beginning."""
    keep = kept(len(found.mean), limit)
    return Band(found.upload[keep], found.mean[keep], found.low[keep], found.high[keep])


def kept(count: int, limit: int) -> NDArray[np.int64]:
    """Which of `count` points are shown: all, or about `limit`, the first and the last among them."""
    if count <= limit:
        return np.arange(count)
    half = limit // 2
    places = np.concatenate([np.linspace(0, count - 1, half), np.geomspace(1, count, half) - 1])
    return np.unique(places.round().astype(np.int64))


def _placed(row: Row | Point, axis: Axis) -> Placed:
    return Placed(row.round, row.score, axis.measure(row) / axis.scale, row.metric)


def _everywhere(entries: Sequence[Entry], measure: Measure) -> bool:
    ends = [row for entry in entries for row in entry.ends]
    return bool(ends) and all(measure(row) > 0 for row in ends)


def _largest(entries: Sequence[Entry], measure: Measure) -> float:
    return max((measure(row) for entry in entries for row in entry.ends), default=0.0)


def _bytes(entries: Sequence[Entry], measure: Measure) -> tuple[str, float]:
    return ("GiB", 2.0**30) if _largest(entries, measure) >= 2**31 else ("MiB", 2.0**20)


def _flops(entries: Sequence[Entry], measure: Measure) -> tuple[str, float]:
    largest = _largest(entries, measure)
    for unit, scale in (("PFLOP", 1e15), ("TFLOP", 1e12)):
        if largest >= 2 * scale:
            return unit, scale
    return "GFLOP", 1e9
