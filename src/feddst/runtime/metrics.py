"""One row a round, and what a run amounts to in the end."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from feddst.core.metric import Metric
from feddst.errors import DamageError
from feddst.runtime.checksums import unseal_lines

MIB, GIB = 8 * 2**20, 8 * 2**30
"""Bits in a MiB and in a GiB."""

ACCURACY = Metric("accuracy", percent=True)
"""The metric of runs that do not say which theirs is: the share of examples that are put into the right class."""

NAME = re.compile(r"[A-Za-z][\w.-]*")
"""What a metric may be called: its name stands in files and on pages."""

SCORES = {"": "score", "_worst": "score_worst", "_global": "score_global", "_personal": "score_personal"}
"""The scores of a row, by how their names in files end."""

Accounting = Literal["measured", "paper", "published"]
"""What counts as upload: the bytes that were sent, or a formula."""


class Scored(Protocol):
    """What tables and pictures need to know of a round."""

    @property
    def round(self) -> int: ...

    @property
    def score(self) -> float | None: ...

    @property
    def metric(self) -> Metric: ...

    def upload(self, accounting: Accounting) -> int:
        """Bits uploaded so far, by this way of counting."""
        ...


@dataclass(frozen=True)
class Row:
    """What is known after a round. Scores and `loss` are None in rounds without an evaluation.

    Scores are values of the run's `metric`, such as accuracy. `score` is the mean over all clients of the global
    model's score on the client's own test set, `score_worst` the mean over the worst tenth of them, `score_global` the
    plain one on all test examples, `score_personal` the mean of each client's own model on (some of) its own test
    examples, for methods whose clients have models of their own. `others` has the same figures of other metrics, as
    `f1`, `f1_worst` and `f1_global`. In files scores stand under the metric's own name. `clients` is how many updates
    were averaged (0 in a round that changed nothing), `refused` how many could not be used, `missing` how many clients
    did not answer in time or could not be asked, `late` how many answers came after their round had ended. Bytes, as
    they were sent, bits, by formula, and FLOPs of training
    (`flops_…`) are totals since the first round; `…_mask_bytes` are those bytes that were masks, `…_header_bytes` those
    that were headers of payloads; the others are values, buffers and padding, and all of the answers that were late or
    refused. A run that was begun before headers were counted has those of its later rounds. `density` is the share of
    the prunable weights that is active, `density_all` the share of all weights and biases that is not masked.
    `forward_flops_sparse` are the FLOPs of one forward pass of the global model for one input, two for each multiply-
    add with a weight, `forward_flops_dense` what they would be without masks; biases, norms and activations are not
    counted. These three are None in rows of older versions.
    """

    round: int
    score: float | None
    score_worst: float | None
    score_global: float | None
    score_personal: float | None
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
    metric: Metric = ACCURACY
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """The score of a run whose metric is accuracy; its accuracy, if that is another of its metrics."""
        return self.value("accuracy")

    def value(self, name: str) -> float | None:
        """A figure by its name in files, such as `rmse` or `rmse_worst`; None if there is none."""
        kind = name.removeprefix(self.metric.name)
        if name.startswith(self.metric.name) and kind in SCORES:
            found: float | None = getattr(self, SCORES[kind])
            return found
        return self.others.get(name)

    def unevaluated(self) -> "Row":
        """The row without its evaluation."""
        none: dict[str, Any] = dict.fromkeys(SCORES.values())
        return replace(self, **none, loss=None, others={})

    def as_dict(self) -> dict[str, Any]:
        """The row as it is written: scores under the metric's name."""
        names = {score: self.metric.name + kind for kind, score in SCORES.items()}
        found = {names.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        return noted(found, self.metric)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Row":
        """The inverse of `as_dict`."""
        metric = metric_in(values)
        _check_others(values.get("others", {}))
        names = {metric.name + kind: score for kind, score in SCORES.items()}
        found = {names.get(name, name): value for name, value in values.items() if name != "metric"}
        return cls(**found, metric=metric)

    def upload(self, accounting: Accounting) -> int:
        """Bits uploaded so far, by this way of counting."""
        return counted_upload(self.upload_bytes, self.upload_bits, accounting)


TAKEN = frozenset(one.name for one in fields(Row))
"""The columns that every run has: no metric may be called so."""


@dataclass(frozen=True)
class Summary:
    """A run in a few numbers. `best`, `final`, `final_personal` and `last_ten` are scores, means over clients.

    Scores are values of `metric`, whose direction says what is best; NaN before the first evaluation. Bytes are as
    sent; `upload_gib` and `download_gib` follow the formula. Densities and the FLOPs of a forward pass
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
    metric: Metric = ACCURACY

    def as_dict(self) -> dict[str, Any]:
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return noted({name: None if value != value else value for name, value in found.items()}, self.metric)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Summary":
        """The inverse of `as_dict`, which has None where there was no evaluation."""
        known = {name: values.get(name) for name in ("best", "final", "last_ten")}
        scores = {name: math.nan if value is None else value for name, value in known.items()}
        return cls(**{**values, **scores, "metric": metric_in(values)})


def noted(values: Mapping[str, Any], metric: Metric) -> dict[str, Any]:
    """What is written of these values: the metric unless it is accuracy, and other metrics if there are any."""
    found = {name: value for name, value in values.items() if name != "metric" and (name != "others" or value)}
    if metric == ACCURACY:
        return found
    about = {"name": metric.name, "higher_is_better": metric.higher_is_better, "percent": metric.percent}
    return {**found, "metric": about}


def metric_in(values: Mapping[str, Any]) -> Metric:
    """The metric that written values have: accuracy if they do not say."""
    about = values.get("metric")
    if about is None:
        return ACCURACY
    metric = Metric(**about)
    if (
        not isinstance(metric.name, str)
        or not NAME.fullmatch(metric.name)
        or type(metric.higher_is_better) is not bool
        or type(metric.percent) is not bool
    ):
        raise TypeError(f"{about} is no metric")
    return metric


def _check_others(others: Any) -> None:
    """Raise `TypeError` unless these are the figures of other metrics."""
    if not isinstance(others, dict):
        raise TypeError("others must be figures by name")
    for name, value in others.items():
        if not NAME.fullmatch(name) or type(value) not in (int, float):
            raise TypeError(f"{name!r} is no figure")


def counted_upload(sent: int, formula: int, accounting: Accounting) -> int:
    """Bits uploaded: eight for each byte sent, or those of a formula."""
    return 8 * sent if accounting == "measured" else formula


def worst_tenth(scores: NDArray[np.float64], metric: Metric = ACCURACY) -> float:
    """The mean score of the worst tenth of the clients, rounded up to whole clients; NaN if no client has a score."""
    known = np.sort(scores[~np.isnan(scores)])
    ordered = known if metric.higher_is_better else known[::-1]
    return float(ordered[: math.ceil(len(ordered) / 10)].mean()) if len(ordered) else math.nan


def is_known(score: float | None) -> TypeGuard[float]:
    """Whether there is a score: a round may have no evaluation, and a metric no value."""
    return score is not None and math.isfinite(score)


def known_or_none(score: float | None) -> float | None:
    """The score, None if there is none: JSON has no other word for that."""
    return score if is_known(score) else None


def best_under(rows: Sequence[Scored], cap_gib: float, accounting: Accounting) -> float | None:
    """The best score evaluated before the upload passed the cap; None if there was no evaluation."""
    seen = [row.score for row in rows if row.score is not None and row.upload(accounting) <= cap_gib * GIB]
    known = [score for score in seen if not math.isnan(score)]
    return rows[0].metric.best(known) if known else None


def summarise(rows: Sequence[Row], stopped_by: str) -> Summary:
    """The summary of a run's rows."""
    metric = rows[-1].metric
    seen = [(row.round, row.score) for row in rows if row.score is not None] or [(0, math.nan)]
    scores = [score for _, score in seen]
    known = [score for score in scores if not math.isnan(score)]
    best = scores.index(metric.best(known)) if known else 0
    return Summary(
        best=scores[best],
        best_round=seen[best][0],
        final=scores[-1],
        final_personal=next((row.score_personal for row in reversed(rows) if row.score is not None), None),
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
        metric=metric,
    )


def write_row(row: Row) -> str:
    """A row as one line of `metrics.jsonl`."""
    return json.dumps(row.as_dict()) + "\n"


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
        row = Row.from_dict(json.loads(line))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return row if type(row.round) is int else None
