"""One row a round, and what a run amounts to in the end."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from feddst.errors import DamageError
from feddst.runtime.checksums import unseal_lines

MIB, GIB = 8 * 2**20, 8 * 2**30
"""Bits in a MiB and in a GiB."""

Accounting = Literal["measured", "paper", "published"]
"""What counts as upload: the bytes that were sent, or a formula."""


class Scored(Protocol):
    """What tables and pictures need to know of a round."""

    @property
    def round(self) -> int: ...

    @property
    def accuracy(self) -> float | None: ...

    def upload(self, accounting: Accounting) -> int:
        """Bits uploaded so far, by this way of counting."""
        ...


@dataclass(frozen=True)
class Row:
    """What is known after a round. Accuracies and `loss` are None in rounds without an evaluation.

    `accuracy` is the mean over all clients of the global model's accuracy on the client's own test set,
    `accuracy_worst` the mean over the worst tenth of them, `accuracy_global` the plain one on all test images,
    `accuracy_personal` the mean of each client's own model on (some of) its own test images, for methods whose clients
    have models of their own. `clients` is how many updates were averaged (0 in a round that changed nothing), `refused`
    how many could not be used, `missing` how many clients did not answer in time or could not be asked, `late` how many
    answers came after their round had ended. Bytes, as they were sent, bits, by formula, and FLOPs of training
    (`flops_…`) are totals since the first round; `…_mask_bytes` are those bytes that were masks, `…_header_bytes` those
    that were headers of payloads; the others are values, buffers and padding, and all of the answers that were late or
    refused. A run that was begun before headers were counted has those of its later rounds. `density` is the share of
    the prunable weights that is active, `density_all` the share of all weights and biases that is not masked.
    `forward_flops_sparse` are the FLOPs of one forward pass of the global model for one image, two for each multiply-
    add with a weight, `forward_flops_dense` what they would be without masks; biases, norms and activations are not
    counted. These three are None in rows of older versions.
    """

    round: int
    accuracy: float | None
    accuracy_worst: float | None
    accuracy_global: float | None
    accuracy_personal: float | None
    loss: float | None
    train_loss: float | None
    density: float
    entered: int
    left: int
    clients: int
    refused: int
    upload_bytes: int
    upload_mask_bytes: int
    download_bytes: int
    download_mask_bytes: int
    upload_bits: int
    download_bits: int
    flops_dense: int
    flops_sparse: int
    seconds: float
    missing: int = 0
    late: int = 0
    upload_header_bytes: int = 0
    download_header_bytes: int = 0
    density_all: float | None = None
    forward_flops_dense: int | None = None
    forward_flops_sparse: int | None = None

    def unevaluated(self) -> "Row":
        """The row without its evaluation."""
        return replace(
            self, accuracy=None, accuracy_worst=None, accuracy_global=None, accuracy_personal=None, loss=None
        )

    def upload(self, accounting: Accounting) -> int:
        """Bits uploaded so far, by this way of counting."""
        return counted_upload(self.upload_bytes, self.upload_bits, accounting)


@dataclass(frozen=True)
class Summary:
    """A run in a few numbers. Accuracies are means over clients, as fractions; NaN before the first evaluation.

    Bytes are as sent; `upload_gib` and `download_gib` follow the formula. Densities and the FLOPs of a forward pass
    are those of the last row; None in summaries of older versions.
    """

    best: float
    best_round: int
    final: float
    final_personal: float | None
    last_ten: float
    rounds: int
    upload_bytes: int
    download_bytes: int
    upload_gib: float
    download_gib: float
    refused: int
    seconds: float
    stopped_by: str
    density: float | None = None
    density_all: float | None = None
    forward_flops_dense: int | None = None
    forward_flops_sparse: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {name: None if value != value else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Summary":
        """The inverse of `as_dict`, which has None where there was no evaluation."""
        known = {name: values.get(name) for name in ("best", "final", "last_ten")}
        return cls(**{**values, **{name: math.nan if value is None else value for name, value in known.items()}})


def counted_upload(sent: int, formula: int, accounting: Accounting) -> int:
    """Bits uploaded: eight for each byte sent, or those of a formula."""
    return 8 * sent if accounting == "measured" else formula


def client_accuracies(correct: NDArray[np.bool_], tests: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Each client's accuracy on its own test set; correct: bool [test images]."""
    counts = np.array([len(indices) for indices in tests])
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    shares: NDArray[np.float64] = np.add.reduceat(correct[np.concatenate(tests)], starts, dtype=np.int64) / counts
    return shares


def worst_tenth(accuracies: NDArray[np.float64]) -> float:
    """Mean accuracy of the worst tenth of the clients, rounded up to whole clients."""
    return float(np.sort(accuracies)[: math.ceil(len(accuracies) / 10)].mean())


def best_under(rows: Sequence[Scored], cap_gib: float, accounting: Accounting) -> float | None:
    """The best mean accuracy evaluated before the upload passed the cap; None if there was no evaluation."""
    seen = [row.accuracy for row in rows if row.accuracy is not None and row.upload(accounting) <= cap_gib * GIB]
    return max(seen, default=None)


def summarise(rows: Sequence[Row], stopped_by: str) -> Summary:
    """The summary of a run's rows."""
    seen = [(row.round, row.accuracy) for row in rows if row.accuracy is not None] or [(0, math.nan)]
    scores = [accuracy for _, accuracy in seen]
    best = int(np.argmax(scores))
    return Summary(
        best=scores[best],
        best_round=seen[best][0],
        final=scores[-1],
        final_personal=next((row.accuracy_personal for row in reversed(rows) if row.accuracy is not None), None),
        last_ten=float(np.mean(scores[-10:])),
        rounds=rows[-1].round,
        upload_bytes=rows[-1].upload_bytes,
        download_bytes=rows[-1].download_bytes,
        upload_gib=rows[-1].upload_bits / GIB,
        download_gib=rows[-1].download_bits / GIB,
        refused=sum(row.refused for row in rows),
        seconds=sum(row.seconds for row in rows),
        stopped_by=stopped_by,
        density=rows[-1].density,
        density_all=rows[-1].density_all,
        forward_flops_dense=rows[-1].forward_flops_dense,
        forward_flops_sparse=rows[-1].forward_flops_sparse,
    )


def write_row(row: Row) -> str:
    """A row as one line of `metrics.jsonl`."""
    return json.dumps(asdict(row)) + "\n"


def read_rows(path: Path, last_round: int | None = None) -> list[Row]:
    """The rows of a `metrics.jsonl`, up to a round; a torn last line (a killed run) is left out."""
    rows: list[Row] = []
    for number, line in enumerate(unseal_lines(path.read_bytes()), 1):
        if rows and rows[-1].round == last_round:
            break
        row = _row(line.content)
        if row is not None and last_round is not None and row.round > last_round:
            break
        if row is None or not line.sound:
            raise DamageError(f"{path}, line {number}, is damaged")
        rows.append(row)
    return rows


def _row(line: bytes) -> Row | None:
    """What a line holds; None if it is damaged."""
    try:
        row = Row(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    return row if type(row.round) is int else None
