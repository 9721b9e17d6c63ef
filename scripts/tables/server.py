"""What many clients cost the server: measured rounds, and what follows for more clients."""

from collections.abc import Callable
from typing import Any

from benchmarks.scale.outlook import CLIENTS
from feddst.flower.message_client import AT_ONCE, LONGEST, SHORTEST
from scripts.tables.blocks import block
from scripts.tables.records import bench, source, with_caption

NETWORKS = {"mnist-cnn": "MNIST", "cifar10-cnn": "CIFAR-10"}
PARTS = ("opening", "sending", "fetching", "adding")
MINUTES = 10
"""How long a round may last, where rates are worked out."""

Found = dict[str, Any]


def _title(row: Found) -> str:
    return f"{NETWORKS[row['network']]}, {row['codec']}, {row['kind']}"


def _largest() -> int:
    return max(int(row["clients"]) for row in bench("scale-bench")["rows"])


def _outlooks(heading: list[str], told: Callable[[Found], list[str]], about: str) -> str:
    rounds = bench("scale-bench")["outlook"]["rounds"]
    rows = [heading, *([_title(one), *told(one)] for one in rounds)]
    return with_caption(rows, f"{about} From {source('scale-bench')}.")


@block
def server_memory() -> str:
    """The server's memory at the peak of a round."""
    found = bench("scale-bench")["rows"]
    sizes = sorted({row["clients"] for row in found})
    titles = list(dict.fromkeys(map(_title, found)))
    peaks = {(_title(row), row["clients"]): f"{row['peak'] / row['dense']:.1f}" for row in found}
    rows = [["models at the peak", *(f"{size:,} clients" for size in sizes)]]
    rows += [[title, *(peaks[title, size] for size in sizes)] for title in titles]
    dense = {NETWORKS[row["network"]]: f"{row['dense'] / 1e6:.2f} MB" for row in found}
    models = " and ".join(f"{size} ({name})" for name, size in dense.items())
    about = f"In dense models of {models}, above what Python, PyTorch and Flower need anyway."
    return with_caption(rows, f"{about} From {source('scale-bench')}.")


@block
def server_time() -> str:
    """Seconds of one core in the largest round that was measured."""
    most = _largest()
    rows = [[f"{most:,} clients", "seconds", *PARTS, "closing"]]
    for row in bench("scale-bench")["rows"]:
        if row["clients"] == most:
            seconds = row["seconds"]
            each = (f"{1e6 * seconds[part] / most:,.0f}" for part in PARTS)
            rows.append([_title(row), f"{seconds['total']:.2f}", *each, f"{1e3 * seconds['closing']:.1f}"])
    return with_caption(rows, f"Parts in µs a client, closing in ms a round. From {source('scale-bench')}.")


@block
def server_updates() -> str:
    """One update, and what Flower makes of it."""
    rows = [
        [
            "one update",
            "bytes",
            "Flower adds, up",
            "packing a message, µs",
            "unpacking an answer, µs",
            "merging a sum, µs",
        ]
    ]
    [added] = [case for case in bench("flower-bytes")["cases"] if (case["method"], case["values"]) == ("feddst", "q4")]
    for row in bench("scale-bench")["updates"]:
        share = added["over_a_message"]["up"] / row["payload"]
        times = (row["flower"]["pack"], row["flower"]["unpack"], row["merge"])
        rows.append(
            [_title(row), f"{row['payload']:,}", f"{100 * share:.1f} %", *(f"{1e6 * one:,.0f}" for one in times)]
        )
    return with_caption(rows, f"From {source('scale-bench', 'flower-bytes')}.")


@block
def outlook_bytes() -> str:
    """Bytes of a round of many clients, and rates if it lasts some minutes."""

    def told(one: Found) -> list[str]:
        sent = [one[way] for way in ("up", "down", "dense")]
        rates = (f"{8 * size / (60 * MINUTES) / 1e6:,.0f}" for size in sent)
        return [*(f"{size / 1e9:.2f}" for size in sent), *rates]

    heading = [f"{CLIENTS:,} clients", "GB up", "GB down", "GB dense", "Mbit/s in", "Mbit/s out", "Mbit/s dense"]
    return _outlooks(heading, told, f"Worked out; rates if a round lasts {MINUTES} minutes.")


@block
def outlook_time() -> str:
    """Seconds and memory of a round of many clients."""

    def told(one: Found) -> list[str]:
        seconds = (f"{one[part]:.1f}" for part in ("seconds", "adding", "flower"))
        return [*seconds, f"{one['memory'] / 1e6:,.0f}", f"{one['each'] / 1e3:.1f}"]

    heading = [f"{CLIENTS:,} clients", "seconds", "of which adding", "Flower's packing", "memory MB", "KB a client"]
    return _outlooks(heading, told, "Worked out; seconds of one core.")


@block
def outlook_requests() -> str:
    """How the server asks many clients' nodes for answers."""
    one, update = bench("scale-bench")["outlook"]["rounds"][0], bench("scale-bench")["updates"][0]
    rows = [
        [f"{CLIENTS:,} clients", ""],
        ["answers that one request asks for", f"{AT_ONCE}"],
        ["requests to look once for all", f"{one['looking']:,}"],
        ["pause after a look that brought something", f"{SHORTEST:g} s"],
        ["pause after several that did not, at most", f"{LONGEST:g} s"],
        ["objects of an answer, a request each", f"{update['flower']['objects']}"],
        ["requests to fetch and confirm all answers", f"{one['fetching']:,}"],
        [f"time for each of them in a round of {MINUTES} minutes", f"{60e3 * MINUTES / one['fetching']:.1f} ms"],
    ]
    return with_caption(rows, f"Settings of `feddst.flower`, and counts from {source('scale-bench')}.")


@block
def outlook_tree() -> str:
    """A tree of servers."""
    record = bench("scale-bench")
    updates = {_title(row): row for row in record["updates"]}

    def told(one: Found) -> list[str]:
        update = updates[_title(one)]
        sizes = [f"{update[part]:,}" for part in ("payload", "partial")]
        seconds = [f"{1e6 * update['merge']:,.0f}", f"{one['leaf']:.2f}", f"{one['root']:.3f}"]
        return [*sizes, f"{one['worthwhile']}", *seconds, f"{one['root_in'] / 1e6:.1f}", f"{one['up'] / 1e6:,.0f}"]

    heading = [
        f"{record['outlook']['leaves']} leaves",
        "bytes an update",
        "bytes a partial sum",
        "updates in its bytes",
    ]
    heading += ["merge µs", "leaf s", "root s", "root MB in", "MB in without"]
    return _outlooks(heading, told, "Worked out.")
