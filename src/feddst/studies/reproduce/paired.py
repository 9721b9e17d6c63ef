"""Differences between two rows on the same seeds, with bootstrap intervals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from feddst.studies.reproduce.record import STUDY, Record
from feddst.studies.tables import SHORT

RESAMPLES = 10_000
KEY = 2022
LEVEL = (2.5, 97.5)


@dataclass(frozen=True)
class Difference:
    """The mean over seeds of one row's score less another's, with the ends of its 95 % interval, as scores are shown.

    `short` says that one of them ended before the cap although another round would have been under it. `decimals` are
    those that are shown; None: four digits.
    """

    mean: float
    low: float
    high: float
    seeds: int
    short: bool = False
    decimals: int | None = 2

    def __str__(self) -> str:
        mark = SHORT * self.short
        if self.seeds == 1:
            return f"{self._text(self.mean, '+')} (one seed){mark}"
        return f"{self._text(self.mean, '+')} [{self._text(self.low)}, {self._text(self.high)}]{mark}"

    def _text(self, value: float, sign: str = "") -> str:
        shown = (
            f"{value + 0.0:{sign}.4g}"
            if self.decimals is None
            else f"{round(value, self.decimals) + 0.0:{sign}.{self.decimals}f}"
        )
        return shown.replace("-", "−")


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """`first` less `second`, each by seed, over the seeds that both have; None if there is no such seed.

    The interval is the percentile bootstrap's: seeds are drawn with replacement, always by the same draws.
    """
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None
    differences = np.array([first[seed] - second[seed] for seed in seeds])
    draws = np.random.Generator(np.random.Philox(KEY)).integers(len(seeds), size=(RESAMPLES, len(seeds)))
    low, high = np.percentile(differences[draws].mean(axis=1), LEVEL)
    return Difference(float(differences.mean()), float(low), float(high), len(seeds))


def pairs(record: Record) -> Iterator[tuple[str, str]]:
    """Names of rows to be compared, those that the paper's claims are about first.

    In a table FedDST is compared with every other row, FedDST + FedProx with its two parts, and the others with
    FedAvgM; in a sweep every value with the table's own; in another figure the pairs of its claim; in a study those of
    its file.
    """
    names = [row.name for row in record.rows]
    if record.target == STUDY or record.compared:
        yield from record.compared
        return
    if record.usual:
        yield from ((name, record.usual) for name in names if name != record.usual)
        return
    yield from [("feddst", "randommask"), ("feddst", "fedavgm")]
    others = [name for name in names if name not in ("feddst", "randommask", "fedavgm")]
    yield from (("feddst", name) for name in others if name != "feddst+fedprox")
    yield from [("feddst+fedprox", "fedprox"), ("feddst+fedprox", "feddst")]
    yield from ((name, "fedavgm") for name in ["randommask", *others])
