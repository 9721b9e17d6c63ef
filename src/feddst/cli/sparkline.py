"""A curve in one line of text."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """A block for each value, from the lowest to the highest; more than `width` are drawn as means of neighbours."""
    if not values or width < 1:
        return ""
    points = values if len(values) <= width else _thinned(values, width)
    low, high = min(points), max(points)
    step = (high - low) / (len(BLOCKS) - 1)
    return "".join(BLOCKS[round((point - low) / step)] if step else BLOCKS[0] for point in points)


def _thinned(values: Sequence[float], width: int) -> list[float]:
    edges = [place * len(values) // width for place in range(width + 1)]
    return [mean(values[start:end]) for start, end in pairwise(edges)]
