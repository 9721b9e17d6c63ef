"""What a report draws beyond a run's metrics: how masks move, layer by layer, and how scores spread over clients."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feddst.core.metric import Metric
from feddst.errors import DamageError
from feddst.runtime.checksums import unseal_lines

BINS = 20
"""The number of bins of equal width in which clients' scores are counted."""


@dataclass(frozen=True)
class LayerLife:
    """A prunable layer after a round: its weights, how many are active, and how many have just entered and left.

    `apart` is the share of a client's active weights that another client of the round does not hold, the mean over
    all pairs of clients; None where no client had a mask of its own.
    """

    name: str
    size: int
    active: int
    entered: int
    left: int
    apart: float | None = None


@dataclass(frozen=True)
class PixelMap:
    """A layer's mask by where its inputs come from.

    `rows[y][x]` is the share of the weights that leave this place, over all channels, that are active.
    """

    layer: str
    rows: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Detail:
    """What has happened in a round: `layers` is empty where no mask has moved, `clients` is None without an evaluation.

    `clients` counts clients by their score on their own test examples, in `BINS` bins of equal width from 0 to 1, or
    over `span`. `inputs` shows the mask of the
    first linear layer that has one, when an evaluation is due and the mask differs from the one last shown.
    """

    round: int
    layers: tuple[LayerLife, ...] = ()
    clients: tuple[int, ...] | None = None
    inputs: PixelMap | None = None
    span: tuple[float, float] | None = None

    @property
    def tells(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.layers) or self.clients is not None or self.inputs is not None


_FIELDS = len(fields(Detail))


def span_of(scores: NDArray[np.float64], metric: Metric) -> tuple[float, float] | None:
    """From where to where clients' scores are counted; None: from 0 to 1, as of every share."""
    known = scores[np.isfinite(scores)]
    if metric.percent or not len(known):
        return None
    low, high = float(known.min()), float(known.max())
    return (low, high) if high > low else (low, low + 1)


def score_counts(scores: NDArray[np.float64], span: tuple[float, float] | None) -> tuple[int, ...]:
    """How many clients have a score in each bin; the last one includes its end."""
    low, high = span or (0.0, 1.0)
    known = scores[np.isfinite(scores)]
    places = np.minimum(((known - low) / (high - low) * BINS).astype(np.int64), BINS - 1)
    return tuple(int(count) for count in np.bincount(places, minlength=BINS))


def write_detail(detail: Detail) -> str:
    """A detail as one line of `details.jsonl`."""
    values = {name: value for name, value in asdict(detail).items() if name != "span" or value is not None}
    return json.dumps(values, separators=(",", ":")) + "\n"


def unevaluated(details: Sequence[Detail], round: int) -> list[Detail]:
    """The details without the evaluation of this round."""
    others = (replace(one, clients=None, inputs=None, span=None) if one.round == round else one for one in details)
    return [one for one in others if one.tells]


def read_details(path: Path, last_round: int | None = None) -> list[Detail]:
    """The details of a `details.jsonl`, up to a round; a torn last line (a killed run) is left out.

    What follows the last line asked for may be damaged: it may not have been on the disk when the machine stopped.
    """
    found: list[Detail] = []
    damaged: DamageError | None = None
    for number, line in enumerate(unseal_lines(path.read_bytes()), 1):
        detail = _detail(line.content)
        later = detail is not None and last_round is not None and detail.round > last_round
        if detail is None or (later and not line.sound):
            damaged = damaged or DamageError(f"{path}, line {number}, is damaged")
        elif later:
            break
        elif damaged is not None:
            raise damaged
        elif not line.sound:
            raise DamageError(f"{path}, line {number}, is damaged")
        elif not _is_sound(detail):
            raise DamageError(f"{path}, line {number}, is damaged: a value is not of its kind")
        else:
            found.append(detail)
    if damaged is not None and last_round is None:
        raise damaged
    return found


def _detail(line: bytes) -> Detail | None:
    """What a line holds; None if it is damaged."""
    try:
        stored = json.loads(line)
        number, clients, inputs = stored["round"], stored["clients"], stored["inputs"]
        span = stored.get("span")
        if type(number) is not int or len(stored) != _FIELDS - (span is None):
            return None
        return Detail(
            round=number,
            layers=tuple(LayerLife(**layer) for layer in stored["layers"]),
            clients=None if clients is None else tuple(clients),
            inputs=None if inputs is None else PixelMap(inputs["layer"], _rows(inputs["rows"])),
            span=None if span is None else _span(*span),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _span(low: object, high: object) -> tuple[float, float]:
    if type(low) is float and type(high) is float and low < high:
        return low, high
    raise ValueError(f"scores are counted from {low} to {high}")


def _is_sound(detail: Detail) -> bool:
    """Whether every value is of its kind, clients are counted at all, and a map's rows are of one length."""
    counts = list(detail.clients or ())
    shares: list[object] = [layer.apart for layer in detail.layers if layer.apart is not None]
    names: list[object] = []
    for layer in detail.layers:
        counts += [layer.size, layer.active, layer.entered, layer.left]
        names.append(layer.name)
    if detail.inputs is not None:
        rows = detail.inputs.rows
        if not rows or not rows[0] or len({len(row) for row in rows}) > 1:
            return False
        shares += [share for row in rows for share in row]
        names.append(detail.inputs.layer)
    return (
        all(type(count) is int and count >= 0 for count in counts)
        and all(type(share) in (int, float) and 0 <= share <= 1 for share in shares)  # type: ignore[operator]
        and all(isinstance(name, str) for name in names)
        and (detail.clients is None or sum(detail.clients) > 0)
    )


def _rows(stored: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in stored)
