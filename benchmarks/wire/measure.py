"""The wire measured: bytes, speeds and errors of real updates, beside what theory and memcpy allow."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.wire.masks import DifferenceRow, MaskRow, difference_row, mask_row
from benchmarks.wire.updates import NetworkName, exchange
from benchmarks.wire.values import CopyRow, ValueRow, copy_row, value_row, value_rows
from feddst.core.keys import LARGEST_SEED
from feddst.options import check_list, option
from feddst.runtime.machine import commit, machine
from feddst.stopwatch import one_thread

Tell = Callable[[str], None]

NEARLY_EMPTY = 0.999
"""The sparsity at which what remains is the cost of a call."""

NEARLY_EMPTY_CODECS = ("float32", "q4")
_FORMAT = 1


@dataclass(frozen=True)
class WireBench:
    """What to measure."""

    networks: tuple[NetworkName, ...] = option(("mnist-cnn", "cifar10-cnn", "resnet18"), "whose updates to measure")
    levels: tuple[float, ...] = option((0.5, 0.8, 0.9, 0.95), "sparsities S", at_least=0, below=1)
    alphas: tuple[float, ...] = option((0.001, 0.01, 0.05), "shares of the mask that move", above=0, at_most=1)
    repeats: int = option(1000, "times that each step is timed, at most: slow ones fewer", at_least=1)
    seed: int = option(0, "initial weights and made-up images follow from this", at_least=0, at_most=LARGEST_SEED)

    def check(self) -> None:
        """Raise `OptionError` if there is nothing to measure."""
        for name in ("networks", "levels", "alphas"):
            check_list(name, getattr(self, name))


@dataclass(frozen=True)
class WireRecord:
    """All that was measured. `calls` are updates that hold next to nothing."""

    values: tuple[ValueRow, ...]
    copies: tuple[CopyRow, ...]
    calls: tuple[ValueRow, ...]
    differences: tuple[DifferenceRow, ...]
    masks: tuple[MaskRow, ...]
    seconds: float

    def as_json(self, command: str) -> dict[str, Any]:
        """Everything, with where and how it was made."""
        return {
            "format": _FORMAT,
            "command": command,
            "commit": commit(),
            "machine": machine(),
            "seconds": round(self.seconds, 1),
            "values": [asdict(row) | _derived(row) for row in self.values],
            "copies": [asdict(row) for row in self.copies],
            "calls": [asdict(row) | _derived(row) for row in self.calls],
            "differences": [asdict(row) | {"ratio": row.ratio} for row in self.differences],
            "masks": [asdict(row) | {"ratio": row.ratio} for row in self.masks],
        }


def measure(bench: WireBench, tell: Tell) -> WireRecord:
    """Measure it all on one core; `tell` is given a line now and then."""
    began = time.monotonic()
    values: list[ValueRow] = []
    copies: list[CopyRow] = []
    calls: list[ValueRow] = []
    differences: list[DifferenceRow] = []
    masks: list[MaskRow] = []
    with one_thread():
        for network in bench.networks:
            for level in bench.levels:
                tell(f"{network}, S = {level:g}")
                plain = exchange(network, level, bench.seed)
                copies.append(copy_row(plain, bench.repeats))
                values += value_rows(plain, bench.repeats)
                masks.append(mask_row(plain))
                for alpha in bench.alphas:
                    differences.append(difference_row(exchange(network, level, bench.seed, alpha), alpha))
            tell(f"{network}, the cost of a call")
            nothing = exchange(network, NEARLY_EMPTY, bench.seed)
            calls += [value_row(nothing, codec, bench.repeats) for codec in NEARLY_EMPTY_CODECS]
    return WireRecord(
        tuple(values), tuple(copies), tuple(calls), tuple(differences), tuple(masks), time.monotonic() - began
    )


def _derived(row: ValueRow) -> dict[str, float]:
    return {
        "bits_per_value": row.bits,
        "bound_bits_per_value": row.bound / row.values,
        "encode_mb_s": row.speed(row.encode),
        "gathered_mb_s": row.speed(row.gathered),
        "decode_mb_s": row.speed(row.decode),
    }
