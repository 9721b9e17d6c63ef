"""What more clients than were measured would need, worked out from what was."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.scale.server import Measured
from benchmarks.scale.sums import SumRow
from feddst.flower.message_client import AT_ONCE

CLIENTS = 10_000
LEAVES = 16
"""Servers below the root of a tree: each adds up its share of the clients."""

OVERHEAD = 14_808
"""Bytes that Flower adds to a message, whatever is in it: an update of 220,000 bytes crossed a proxy as 234,808."""


@dataclass(frozen=True)
class Outlook:
    """A round of `CLIENTS` clients. Bytes of all payloads: `up`, `down`, and `dense`, either way, without sparsity;
    `overhead`: what Flower adds to them, each way.

    Seconds of a core: `seconds` for all that our server does, `adding` for the updates, as a part of that, `flower` for
    taking messages and answers apart, on top. `requests`: to look once for every answer, and then to fetch them all.
    `memory`: bytes, of which `each` for every client.

    With a tree: `leaf` and `root` are seconds of a core for adding up, `root_in` bytes that reach the root, and
    `worthwhile` how many updates have the bytes of one partial sum.
    """

    network: str
    codec: str
    kind: str
    up: int
    down: int
    dense: int
    overhead: int
    seconds: float
    adding: float
    flower: float
    looking: int
    fetching: int
    memory: int
    each: float
    leaf: float
    root: float
    root_in: int
    worthwhile: int


def outlooks(rows: Sequence[Measured], sums: Sequence[SumRow]) -> list[Outlook]:
    """One for each kind of round."""
    found: list[Outlook] = []
    for one in sums:
        key = (one.case.network, one.case.codec, one.case.kind)
        mine = [row for row in rows if (row.case.network, row.case.codec, row.case.kind) == key]
        found.append(_outlook(sorted(mine, key=lambda row: row.case.clients), one))
    return found


def memory_line(rows: Sequence[Measured]) -> tuple[float, float]:
    """Bytes of memory at the peak: those for each client, and those however many there are.

    The line through all sizes at which as many updates are in memory as ever are; flat, if there are fewer than two.
    """
    full = [row for row in rows if row.case.clients >= AT_ONCE]
    if len(full) < 2:
        return 0.0, float(rows[-1].peak)
    return statistics.linear_regression([row.case.clients for row in full], [row.peak for row in full])


def _outlook(rows: Sequence[Measured], one: SumRow) -> Outlook:
    last = rows[-1]
    times = CLIENTS / last.case.clients
    lap = last.lap
    each, always = memory_line(rows)
    return Outlook(
        one.case.network,
        one.case.codec,
        one.case.kind,
        up=round(times * last.up),
        down=round(times * last.down),
        dense=CLIENTS * last.dense,
        overhead=CLIENTS * OVERHEAD,
        seconds=times * (lap.total - lap.closing) + lap.closing,
        adding=times * lap.adding,
        flower=CLIENTS * (one.flower.pack + one.flower.unpack),
        looking=math.ceil(CLIENTS / AT_ONCE),
        fetching=CLIENTS * (one.flower.objects + 1),
        memory=round(always + CLIENTS * each),
        each=each,
        leaf=times * lap.adding / LEAVES,
        root=LEAVES * one.merge + lap.closing,
        root_in=LEAVES * one.partial,
        worthwhile=math.ceil(one.partial / one.payload),
    )
