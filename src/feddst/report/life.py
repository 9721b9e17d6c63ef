"""How masks lived and how scores spread over clients, as far as runs kept details of it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from feddst.report.curves import kept
from feddst.report.entries import Entry
from feddst.runtime.details import BINS, Detail, LayerLife, PixelMap
from feddst.runtime.metrics import is_known

ROUNDS = 120
"""Rounds in which masks moved are added up to at most about so many steps."""
MAPS = 24
HISTOGRAMS = 60
SIDE = 56
"""Maps of more places a side than this are drawn with fewer squares."""


SHARES = (0.0, 1.0)
"""What shares are counted over."""


@dataclass(frozen=True)
class Step:
    """One or several rounds of a layer: weights that entered and left in them, and those active at their end.

    `apart` is a mean over the rounds in which clients had masks of their own.
    """

    round: int
    active: int
    entered: int
    left: int
    apart: float | None


@dataclass(frozen=True)
class Layer:
    """The life of a prunable layer."""

    name: str
    size: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class MaskLife:
    """The life of one run's masks.

    `together` is how many rounds at most a step stands for; a square of a map stands for `side` × `side` places.
    """

    seed: int
    layers: tuple[Layer, ...]
    together: int
    maps: tuple[tuple[int, PixelMap], ...]
    side: int = 1


@dataclass(frozen=True)
class Crowd:
    """Clients by score after a round, those of all seeds together, counted over `span`, with mean and worst tenth."""

    round: int
    counts: tuple[int, ...]
    mean: float
    worst: float | None
    span: tuple[float, float] = SHARES


def mask_life(entry: Entry) -> MaskLife | None:
    """The life of the masks in the entry's first run that kept details; None if none did."""
    found = entry.first_details()
    if found is None:
        return None
    seed, details = found
    moved = [detail for detail in details if detail.layers]
    together = -(-len(moved) // ROUNDS) if moved else 1
    names = list(dict.fromkeys(layer.name for detail in moved for layer in detail.layers))
    shown = [(detail.round, detail.inputs) for detail in details if detail.inputs is not None]
    side = -(-max((max(len(each.rows), len(each.rows[0])) for _, each in shown), default=1) // SIDE)
    maps = tuple((shown[i][0], _coarser(shown[i][1], side)) for i in kept(len(shown), MAPS))
    return MaskLife(seed, tuple(_layer(name, moved, together) for name in names), together, maps, side)


def crowds(entry: Entry) -> list[Crowd]:
    """How scores spread over clients, at evaluations for which details were kept."""
    counts: dict[int, list[Detail]] = defaultdict(list)
    for run in entry.runs:
        for detail in run.details or ():
            if detail.clients is not None:
                counts[detail.round].append(detail)
    rounds = sorted(counts)
    return [_crowd(entry, rounds[i], counts[rounds[i]]) for i in kept(len(rounds), HISTOGRAMS)]


def _layer(name: str, moved: Sequence[Detail], together: int) -> Layer:
    lives = [(detail.round, layer) for detail in moved for layer in detail.layers if layer.name == name]
    parts = [lives[i : i + together] for i in range(0, len(lives), together)]
    return Layer(name, lives[-1][1].size, tuple(_step(part) for part in parts))


def _coarser(map: PixelMap, side: int) -> PixelMap:
    """The map with means over `side` × `side` places, or what is left of them at its edges."""
    if side == 1:
        return map
    rows = np.array(map.rows)
    for axis in (0, 1):
        starts = np.arange(0, rows.shape[axis], side)
        counts = np.diff([*starts, rows.shape[axis]])
        rows = np.add.reduceat(rows, starts, axis) / np.expand_dims(counts, 1 - axis)
    return PixelMap(map.layer, tuple(tuple(row) for row in rows.tolist()))


def _step(part: Sequence[tuple[int, LayerLife]]) -> Step:
    last_round, last = part[-1]
    apart = [layer.apart for _, layer in part if layer.apart is not None]
    return Step(
        last_round,
        last.active,
        sum(layer.entered for _, layer in part),
        sum(layer.left for _, layer in part),
        mean(apart) if apart else None,
    )


def _crowd(entry: Entry, number: int, details: Sequence[Detail]) -> Crowd:
    rows = [row for run in entry.runs if run.details for row in run.rows if row.round == number]
    means = [row.score for row in rows if is_known(row.score)]
    worst = [row.score_worst for row in rows if is_known(row.score_worst)]
    span, pooled = _pooled(details)
    return Crowd(number, pooled, mean(means) if means else 0.0, mean(worst) if worst else None, span)


def _pooled(details: Sequence[Detail]) -> tuple[tuple[float, float], tuple[int, ...]]:
    """Over what the clients of several seeds are counted, and how many are in each bin.

    Where seeds are counted over different spans, the clients of a bin are put where its middle is.
    """
    spans = [detail.span or SHARES for detail in details]
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    pooled = [0] * BINS
    for (first, last), detail in zip(spans, details, strict=True):
        for i, count in enumerate(detail.clients or ()):
            middle = first + (i + 0.5) * (last - first) / BINS
            pooled[min(BINS - 1, int((middle - low) / (high - low) * BINS))] += count
    return (low, high), tuple(pooled)
