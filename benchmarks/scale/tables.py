"""What was measured of growing rounds, as tables."""

from typing import Any

from benchmarks.scale.cases import IMAGES
from benchmarks.scale.measure import ScaleRecord
from benchmarks.scale.outlook import CLIENTS, LEAVES, Outlook
from benchmarks.scale.server import WARMING, Measured
from benchmarks.scale.sums import SumRow
from benchmarks.tables import Table, paragraphs
from feddst.flower.message_client import AT_ONCE

MB = 1e6


def tables(record: ScaleRecord) -> list[Table]:
    """All tables of a record."""
    return [_rounds(record), _updates(record), _outlook(record), _tree(record)]


def markdown(record: ScaleRecord, about: dict[str, Any]) -> str:
    """A page with all tables; `about` is the record as JSON."""
    place = ", ".join(f"{name} {value}" for name, value in about["machine"].items() if name != "cpu")
    parts = [
        "# What clients cost the server",
        "Use this page to look up what a round costs the server. What follows from it: [many clients](scale.md).",
        f"Made by `{about['command']}` in {about['seconds']:.0f} s, commit {about['commit'] or 'unknown'}, "
        f"on {about['machine']['cpu']} ({place}), the server on one core.",
        f"FedDST, S = {record.level:g}, all clients in every round, on a grid in the server's process. Nobody trains. "
        "Updates are valid and no two are alike: the broadcast with a little noise, and in readjusting rounds with as "
        f"many weights exchanged as α = 0.05 says, from clients that say they have {IMAGES} images. They come from "
        "a process of their own, one at a time, so that neither their memory nor their time is the server's.",
    ]
    return "\n\n".join([*parts, *paragraphs(tables(record))]) + "\n"


def _rounds(record: ScaleRecord) -> Table:
    heading = ("network", "codec", "round", "clients", "seconds", "opening", "sending", "fetching", "adding", "closing")
    caption = f"Medians of the timed rounds. At most {AT_ONCE} updates are fetched at once."
    columns = {
        "seconds": "of a core (time that a thread computed), the server's alone.",
        "opening": "who takes part, the broadcast, plans; µs a client, as the next three.",
        "sending": "messages to clients.",
        "fetching": "answers as Flower's messages.",
        "adding": "decoding, checking, adding up.",
        "closing": "the new model and the round's row; ms a round.",
        "up, down": "MB of payloads in a round.",
        "kept, peak": "memory of the process (Linux's VmRSS and VmHWM) between rounds and at most, in dense float32 "
        f"models, above what it was after rounds with {WARMING} clients. *peak MB*: the same in MB.",
    }
    rows = [(*heading, "up", "down", "kept", "peak", "peak MB"), *(_round_line(row) for row in record.rows)]
    return Table("Rounds", caption, rows, columns=columns)


def _round_line(row: Measured) -> tuple[str, ...]:
    lap, clients = row.lap, row.case.clients
    parts = (lap.opening, lap.sending, lap.fetching, lap.adding)
    return (
        row.case.network,
        row.case.codec,
        row.case.kind,
        f"{clients:,}",
        f"{lap.total:.3f}",
        *(f"{1e6 * part / clients:,.0f}" for part in parts),
        f"{1e3 * lap.closing:.1f}",
        f"{row.up / MB:.1f}",
        f"{row.down / MB:.1f}",
        f"{row.kept / row.dense:.1f}",
        f"{row.peak / row.dense:.1f}",
        f"{row.peak / MB:.1f}",
    )


def _updates(record: ScaleRecord) -> Table:
    heading = (
        "network",
        "codec",
        "round",
        "update",
        "decode",
        "add",
        "partial sum",
        "merge",
        "objects",
        "pack",
        "unpack",
    )
    caption = "What one client's update costs."
    columns = {
        "update": "bytes of a payload.",
        "decode, add": "µs of a core for one update, decoding with all checks.",
        "partial sum": "bytes of the sum of however many updates, as its numbers lie in memory.",
        "merge": "µs for adding one partial sum to another. Sums of parts merged to the same bits as one sum of all.",
        "objects": "what Flower takes an answer apart into, a request each.",
        "pack, unpack": "µs that this takes for a message, and back for an answer.",
    }
    return Table("One update", caption, [heading, *(_update_line(row) for row in record.sums)], columns=columns)


def _update_line(row: SumRow) -> tuple[str, ...]:
    flower = row.flower
    return (
        row.case.network,
        row.case.codec,
        row.case.kind,
        f"{row.payload:,}",
        *(f"{1e6 * seconds:,.0f}" for seconds in (row.decode, row.add)),
        f"{row.partial:,}",
        f"{1e6 * row.merge:,.0f}",
        str(flower.objects),
        *(f"{1e6 * seconds:,.0f}" for seconds in (flower.pack, flower.unpack)),
    )


def _outlook(record: ScaleRecord) -> Table:
    heading = ("network", "codec", "round", "GB up", "GB down", "GB dense", "seconds", "adding", "Flower", "memory MB")
    caption = "Worked out, not measured: the largest round above, taken so many times."
    columns = {
        "GB dense": "one way, in float32 without sparsity.",
        "seconds": "of a core, of which *adding*.",
        "Flower": "on top, for packing messages and unpacking answers.",
        "memory MB": "the line through the sizes above; *bytes a client* is its slope.",
    }
    rows = [(*heading, "bytes a client"), *(_outlook_line(one) for one in record.outlooks)]
    return Table(f"{CLIENTS:,} clients in a round", caption, rows, columns=columns)


def _outlook_line(one: Outlook) -> tuple[str, ...]:
    return (
        one.network,
        one.codec,
        one.kind,
        *(f"{size / 1e9:.2f}" for size in (one.up, one.down, one.dense)),
        *(f"{seconds:.1f}" for seconds in (one.seconds, one.adding, one.flower)),
        f"{one.memory / MB:.0f}",
        f"{one.each:,.0f}",
    )


def _tree(record: ScaleRecord) -> Table:
    caption = (
        f"Worked out: {LEAVES} servers add up {CLIENTS // LEAVES} clients each, and one merges their sums. There is no "
        "such tree yet."
    )
    columns = {
        "leaf, root": "seconds of a core for adding up, and for merging and closing.",
        "MB in": "what reaches the root.",
        "worthwhile": "how many updates have the bytes of one partial sum. Below a leaf with fewer, a tree saves the "
        "root no bytes.",
    }
    rows = [
        (
            one.network,
            one.codec,
            one.kind,
            f"{one.leaf:.2f}",
            f"{one.root:.3f}",
            f"{one.root_in / MB:.1f}",
            str(one.worthwhile),
        )
        for one in record.outlooks
    ]
    return Table(
        "A tree",
        caption,
        [("network", "codec", "round", "leaf", "root", "MB in", "worthwhile"), *rows],
        columns=columns,
    )
