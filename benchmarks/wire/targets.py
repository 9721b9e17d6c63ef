"""What the format was designed for, and whether it is so."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.wire.measure import WireRecord
from benchmarks.wire.values import ValueRow
from feddst.stopwatch import Timing

LARGEST_RATIO = 1.10
FRAMING_BYTES, FRAMING_SHARE = 128, 0.01
FLOAT32_SPEED, Q4_SPEED = 1000, 200


@dataclass(frozen=True)
class Verdict:
    """How many rows meet a target, and the one that is furthest from it."""

    target: str
    rows: int
    met: int
    worst: str


def verdicts(record: WireRecord) -> list[Verdict]:
    """All targets."""
    return [
        _differences(record),
        _framing(record),
        *_speeds(record, "float32", FLOAT32_SPEED),
        *_speeds(record, "q4", Q4_SPEED),
    ]


def _differences(record: WireRecord) -> Verdict:
    cases = [
        (row.ratio, f"{row.ratio:.3f}: {row.network}, S = {row.level:g}, α = {row.alpha:g}, {row.measured:,} bytes")
        for row in record.differences
    ]
    return _verdict("mask differences: at most 1.1 times their entropy", cases, lambda ratio: ratio <= LARGEST_RATIO)


def _framing(record: WireRecord) -> Verdict:
    """A row's excess over what is allowed, which is the larger of the two bounds."""
    cases = [
        (
            row.sizes.framing / max(FRAMING_BYTES, FRAMING_SHARE * row.sizes.payload),
            f"{row.sizes.framing} of {row.sizes.payload:,} bytes: {row.network}, S = {row.level:g}, {row.codec}",
        )
        for row in record.values
    ]
    return _verdict("header and framing: below 1 % of the payload, or 128 bytes", cases, lambda excess: excess <= 1)


def _speeds(record: WireRecord, codec: str, least: int) -> Iterable[Verdict]:
    rows = [row for row in record.values if (row.codec, row.packing) == (codec, "plain")]
    return [
        _speed(f"{codec} encode", [(row, row.encode) for row in rows], least),
        _speed(f"{codec} decode", [(row, row.decode) for row in rows], least),
    ]


def _speed(what: str, rows: Iterable[tuple[ValueRow, Timing]], least: int) -> Verdict:
    cases = [(-row.speed(timing), _slowness(row, timing)) for row, timing in rows]
    return _verdict(f"{what}: at least {least:,} MB/s on one core", cases, lambda speed: -speed >= least)


def _slowness(row: ValueRow, timing: Timing) -> str:
    speed, call = row.speed(timing), 1e6 * timing.median
    return f"{speed:,.0f} MB/s: {row.network}, S = {row.level:g}, {row.values:,} values in {call:,.0f} µs"


def _verdict(target: str, cases: list[tuple[float, str]], meets: Callable[[float], bool]) -> Verdict:
    """From each row's measure, of which less is better, and how it is told."""
    met = sum(meets(measure) for measure, _ in cases)
    return Verdict(target, len(cases), met, max(cases)[1] if cases else "")
