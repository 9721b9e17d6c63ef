"""What went over the wire in an entry's runs, by part: masks, values and headers."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from feddst.report.entries import Entry
from feddst.runtime.metrics import Row
from feddst.studies.reproduce.record import Point


@dataclass(frozen=True)
class Parts:
    """Bytes of whole runs, means over seeds. Bytes of older runs and records, which are not split, are in `other`."""

    mask: float = 0.0
    values: float = 0.0
    header: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        return self.mask + self.values + self.header + self.other


@dataclass(frozen=True)
class Traffic:
    """What went up and down in all, and in how many rounds."""

    up: Parts
    down: Parts
    rounds: float


def traffic(entry: Entry) -> Traffic:
    """The bytes of an entry's runs."""
    ends = entry.ends
    up = [_parts(row, "upload") for row in ends]
    down = [_parts(row, "download") for row in ends]
    return Traffic(_mean(up), _mean(down), mean([row.round for row in ends]) if ends else 0.0)


def _parts(row: Row | Point, way: str) -> Parts:
    total: int = getattr(row, f"{way}_bytes")
    if not isinstance(row, Row):
        return Parts(other=total)
    mask: int = getattr(row, f"{way}_mask_bytes")
    header: int = getattr(row, f"{way}_header_bytes")
    rest = total - mask - header
    return Parts(mask=mask, values=rest, header=header) if header else Parts(mask=mask, other=rest)


def _mean(parts: Sequence[Parts]) -> Parts:
    if not parts:
        return Parts()
    return Parts(
        mean(each.mask for each in parts),
        mean(each.values for each in parts),
        mean(each.header for each in parts),
        mean(each.other for each in parts),
    )
