"""What was measured, as tables."""

from collections.abc import Sequence
from typing import Any

from benchmarks.tables import Table, paragraphs
from benchmarks.wire.measure import WireRecord
from benchmarks.wire.targets import verdicts
from benchmarks.wire.updates import IMAGES
from benchmarks.wire.values import CopyRow, ValueRow

NONE = "–"


def tables(record: WireRecord) -> list[Table]:
    """All tables of a record."""
    return [_targets(record), _values(record), _calls(record), _errors(record), _differences(record), _masks(record)]


def markdown(record: WireRecord, about: dict[str, Any]) -> str:
    """A page with all tables; `about` is the record as JSON."""
    place = ", ".join(f"{name} {value}" for name, value in about["machine"].items() if name != "cpu")
    parts = [
        "# What the wire costs",
        "Use this page to look up how many bytes an update takes with each codec, and how long it takes to write and "
        "read. Which to take: [What to choose](choosing.md#the-codec-of-updates). The format: [wire.md](wire.md).",
        f"Made by `{about['command']}` in {about['seconds']:.0f} s, commit {about['commit'] or 'unknown'}, "
        f"on {about['machine']['cpu']} ({place}), on one core.",
        f"Updates are real: FedDST's first broadcast, and one client's epoch on {IMAGES} made-up images.",
    ]
    return "\n\n".join([*parts, *paragraphs(tables(record))]) + "\n"


def _targets(record: WireRecord) -> Table:
    rows = [(v.target, f"{v.met} of {v.rows}", v.worst) for v in verdicts(record)]
    caption = "How many rows of the tables below meet what the format was designed for, and the one furthest from it."
    return Table("Targets", caption, [("target", "rows that meet it", "worst row"), *rows], numbers=False)


def _values(record: WireRecord) -> Table:
    heading = ("network", "S", "values", "codec", "bytes", "bits", "entropy", "framing", "encode", "dense", "decode")
    rows: list[Sequence[str]] = [heading]
    for copy in record.copies:
        mine = [row for row in record.values if (row.network, row.level) == (copy.network, copy.level)]
        rows += [*map(_value_line, mine), *_copy_lines(copy)]
    caption = (
        "One client's update with each codec. memcpy, and numpy.save to memory and numpy.load, move the same values as "
        "float32."
    )
    columns = {
        "bytes": "the payload.",
        "bits": "of the payload, for each value sent.",
        "entropy": "bits a value too: of float32 and 16-bit numbers their width, of quantised ones the entropy of "
        "their levels, each by itself, plus 16 bits for each block's scale. What adapts to parts of the model, or "
        "looks at levels in pairs, as deflate does, may fall below.",
        "framing": "bytes that are neither mask, values nor buffers.",
        "encode, decode": "MB/s of float32 that the values stand for, from an update that holds its active weights, "
        "and back with all checks.",
        "dense": "MB/s of all that a client does after its training: find the weights under its mask, gather them, "
        "name the mask, encode.",
    }
    return Table("Values", caption, rows, columns=columns)


def _value_line(row: ValueRow) -> Sequence[str]:
    return (
        row.network,
        f"{row.level:g}",
        f"{row.values:,}",
        _codec(row),
        f"{row.sizes.payload:,}",
        f"{row.bits:.2f}",
        f"{row.bound / row.values:.2f}",
        str(row.sizes.framing),
        *(f"{row.speed(timing):,.0f}" for timing in (row.encode, row.gathered, row.decode)),
    )


def _copy_lines(row: CopyRow) -> list[Sequence[str]]:
    where = (row.network, f"{row.level:g}", f"{row.values:,}")
    speeds = [f"{row.speed(timing):,.0f}" for timing in (row.memcpy, row.save, row.load)]
    return [
        (*where, "memcpy", f"{4 * row.values:,}", "32.00", NONE, NONE, speeds[0], NONE, speeds[0]),
        (*where, "numpy", f"{row.file:,}", f"{8 * row.file / row.values:.2f}", NONE, NONE, speeds[1], NONE, speeds[2]),
    ]


def _calls(record: WireRecord) -> Table:
    caption = (
        "Updates with one weight in a thousand, in µs: what is left is the cost of a call, which dominates small "
        "payloads."
    )
    columns = {
        "dense": "as above; it looks at every weight of the mask.",
    }
    rows = [
        (
            row.network,
            f"{row.values:,}",
            _codec(row),
            *(f"{1e6 * timing.median:,.0f}" for timing in (row.encode, row.gathered, row.decode)),
        )
        for row in record.calls
    ]
    return Table(
        "The cost of a call",
        caption,
        [("network", "values", "codec", "encode", "dense", "decode"), *rows],
        columns=columns,
    )


def _errors(record: WireRecord) -> Table:
    caption = (
        "Mean squares over all values. Where error/change is near 1 or above, a single update is mostly noise. float32 "
        "has no error."
    )
    columns = {
        "change": "what the client changed.",
        "error": "in that change after the wire, measured over five encodings or more.",
        "expected": "the same, worked out for the quantisers.",
    }
    rows = [
        (
            row.network,
            f"{row.level:g}",
            row.codec,
            f"{row.error.change:.2e}",
            f"{row.error.measured:.2e}",
            NONE if row.error.expected is None else f"{row.error.expected:.2e}",
            f"{row.error.measured / row.error.change:.1e}",
        )
        for row in record.values
        if row.packing == "plain" and row.error.measured
    ]
    heading = ("network", "S", "codec", "change", "error", "expected", "error/change")
    return Table("Errors", caption, [heading, *rows], columns=columns)


def _differences(record: WireRecord) -> Table:
    caption = "Masks that clients have readjusted, against the one they were sent."
    columns = {
        "entropy": "log₂C(k, leaving) + log₂C(n − k, entering), summed over layers of n weights of which k are kept, "
        "in bytes; how many move is not counted. It is the least for masks that move at random; real ones do not "
        "quite, and may fall below.",
        "ratio": "bytes to entropy.",
    }
    rows = [
        (
            row.network,
            f"{row.level:g}",
            f"{row.alpha:g}",
            f"{row.kept:,}",
            f"{row.leaving:,}",
            f"{row.entering:,}",
            row.code,
            f"{row.measured:,}",
            f"{row.entropy:,.0f}",
            f"{row.ratio:.3f}",
        )
        for row in record.differences
    ]
    heading = ("network", "S", "α", "kept", "leaving", "entering", "code", "bytes", "entropy", "ratio")
    return Table("Mask differences", caption, [heading, *rows], columns=columns)


def _masks(record: WireRecord) -> Table:
    caption = "Whole masks, in bytes."
    columns = {
        "bitmap": "one bit for each weight.",
        "positions": "the positions of those kept.",
        "entropy": "n·H(k/n), summed over layers.",
        "ratio": "positions to entropy.",
    }
    rows = [
        (
            row.network,
            f"{row.level:g}",
            f"{row.weights:,}",
            f"{row.kept:,}",
            f"{row.bitmap:,}",
            f"{row.positions:,}",
            f"{row.entropy:,.0f}",
            f"{row.ratio:.3f}",
        )
        for row in record.masks
    ]
    heading = ("network", "S", "weights", "kept", "bitmap", "positions", "entropy", "ratio")
    return Table("Whole masks", caption, [heading, *rows], columns=columns)


def _codec(row: ValueRow) -> str:
    return row.codec if row.packing == "plain" else f"{row.codec} {row.packing}"
