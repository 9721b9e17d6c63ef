"""Rounds with more and more clients: what they cost the server in time and memory."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from benchmarks.scale.cases import Case, Kind
from benchmarks.scale.options import ScaleBench
from benchmarks.scale.outlook import CLIENTS, LEAVES, OVERHEAD, Outlook, outlooks
from benchmarks.scale.processes import apart
from benchmarks.scale.server import Measured, measure_case
from benchmarks.scale.sums import SumRow, measure_sums
from feddst.engines.native.library import why_missing
from feddst.runtime.machine import commit, machine

Tell = Callable[[str], None]

KINDS: tuple[Kind, ...] = ("ordinary", "readjusting")

FEW = 32
"""Clients whose updates are decoded and added one by one."""

_FORMAT = 1


@dataclass(frozen=True)
class ScaleRecord:
    """All that was measured, and what follows from it for more clients."""

    level: float
    rows: tuple[Measured, ...]
    sums: tuple[SumRow, ...]
    seconds: float

    @property
    def outlooks(self) -> list[Outlook]:
        """What many clients would need."""
        return outlooks(self.rows, self.sums)

    def as_json(self, command: str) -> dict[str, Any]:
        """Everything, with where and how it was made."""
        return {
            "format": _FORMAT,
            "command": command,
            "commit": commit(),
            "machine": machine() | {"flwr": version("flwr"), "native": not why_missing()},
            "seconds": round(self.seconds, 1),
            "level": self.level,
            "rows": [_row(row) for row in self.rows],
            "updates": [_sum(row) for row in self.sums],
            "outlook": {
                "clients": CLIENTS,
                "leaves": LEAVES,
                "flower_bytes_a_message": OVERHEAD,
                "rounds": [asdict(one) for one in self.outlooks],
            },
        }


def measure(bench: ScaleBench, tell: Tell) -> ScaleRecord:
    """Measure it all, each case in a fresh process on one core; `tell` is given a line for each."""
    began = time.monotonic()
    rows: list[Measured] = []
    sums: list[SumRow] = []
    for network in bench.networks:
        for codec in bench.codecs:
            for kind in KINDS:
                for clients in sorted(bench.clients):
                    case = Case(network, codec, kind, clients, bench.level, bench.seed, bench.rounds)
                    row = apart(measure_case, case)
                    rows.append(row)
                    tell(f"{case}: {row.lap.total:.3f} s a round, {row.peak / row.dense:.1f} models")
                sums.append(apart(measure_sums, Case(network, codec, kind, FEW, bench.level, bench.seed, 1)))
    return ScaleRecord(bench.level, tuple(rows), tuple(sums), time.monotonic() - began)


def _row(row: Measured) -> dict[str, Any]:
    return _names(row.case) | {
        "dense": row.dense,
        "up": row.up,
        "down": row.down,
        "kept": row.kept,
        "peak": row.peak,
        "seconds": asdict(row.lap) | {"total": row.lap.total},
        "rounds": [lap.total for lap in row.laps],
    }


def _sum(row: SumRow) -> dict[str, Any]:
    plain = {name: value for name, value in asdict(row).items() if name != "case"}
    return _names(row.case) | plain


def _names(case: Case) -> dict[str, Any]:
    return {"network": case.network, "codec": case.codec, "kind": case.kind, "clients": case.clients}
