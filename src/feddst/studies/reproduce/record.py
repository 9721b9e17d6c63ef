"""The record of a reproduction: every run's curve, and what made it. Tables and figures follow from it."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import accumulate, product
from pathlib import Path
from typing import Any

from feddst.core.metric import Metric
from feddst.errors import CheckpointError
from feddst.options import flatten
from feddst.runtime.metrics import (
    ACCURACY,
    GIB,
    SCORES,
    Accounting,
    Row,
    counted_upload,
    is_known,
    known_or_none,
    metric_in,
    noted,
)
from feddst.runtime.old_names import named_now, renewed
from feddst.runtime.storage import occupied, write_atomically
from feddst.studies.comparison import Curve
from feddst.studies.reproduce.plan import PlannedRow, PlannedRun

RECORD = "record.json"
STUDY = "study"
"""The target of records whose rows come from a file."""
_FORMAT = 1


@dataclass(frozen=True)
class Point:
    """An evaluation. Bytes, bits and seconds are totals since the run's first round.

    In a record scores stand under their metric's own name, and a run whose metric is not accuracy says which it is.
    `others` has the figures of other metrics, as in a `Row`. Runs that were played side by side share their seconds.
    """

    round: int
    score: float
    score_worst: float | None
    score_global: float | None
    upload_bytes: int
    upload_bits: int
    download_bytes: int
    seconds: float
    metric: Metric = ACCURACY
    others: Mapping[str, float] = field(default_factory=dict, hash=False)

    def upload(self, accounting: Accounting) -> int:
        """Bits uploaded so far, by this way of counting."""
        return counted_upload(self.upload_bytes, self.upload_bits, accounting)


@dataclass(frozen=True)
class RecordedRun(Curve[Point]):
    """The evaluations of one run; `stopped_by` is empty until it has come to its end."""

    stopped_by: str = ""

    def settled(self, cap_gib: float) -> bool:
        """Whether the result at this cap is final: the cap is passed, or the run ended, but not at a smaller cap."""
        ended = bool(self.stopped_by) and not 0 < self.cap_gib < cap_gib
        return ended or self.uploaded > cap_gib * GIB


@dataclass(frozen=True)
class RecordedRow:
    """A row and its runs, one a seed; `value` is that of the option that a sweep varies.

    `config` is what was written, maybe by an earlier version; `options` are the same by today's names.
    """

    name: str
    title: str
    value: float | None
    config: Mapping[str, Any]
    runs: tuple[RecordedRun, ...]

    @property
    def options(self) -> dict[str, Any]:
        """The options of its runs."""
        return named_now(renewed(self.config))

    def best(self, cap_gib: float) -> dict[int, float]:
        """The best score under a cap, as it is shown, by seed, of the runs that have settled there."""
        found = {run.seed: run.best(cap_gib) for run in self.runs if run.settled(cap_gib)}
        return {seed: self.metric.shown(best) for seed, best in found.items() if best is not None}

    @property
    def metric(self) -> Metric:
        """What its scores are values of."""
        return next((run.metric for run in self.runs if run.rows), ACCURACY)


@dataclass(frozen=True)
class Maker:
    """One commit, device and version of PyTorch with which runs of the record were played, and for how long in all.

    `seconds` is 0 in records that do not say.
    """

    commit: str
    device: str
    torch: str
    seconds: float = 0.0


def makers(several: Iterable[Maker]) -> tuple[Maker, ...]:
    """Each maker once, in the order in which they appear, with its seconds added up."""
    seconds: dict[Maker, float] = {}
    for one in several:
        same = replace(one, seconds=0.0)
        seconds[same] = seconds.get(same, 0.0) + one.seconds
    return tuple(replace(one, seconds=long) for one, long in seconds.items())


def commands(several: Iterable[str]) -> str:
    """These command lines as one text, each once; some may be empty, or joined already."""
    return "; ".join(dict.fromkeys(one for line in several for one in each_command(line)))


def each_command(lines: str) -> list[str]:
    """The command lines that `commands` has joined."""
    return [line for line in re.split("; (?=feddst )", lines) if line]


@dataclass(frozen=True)
class Record:
    """All that a reproduction has found so far. `seeds` is how many a row should have.

    `command` are the command lines that have made it, with a semicolon between them if they differ.

    `compared` are the pairs of rows to be compared in a study, or in a figure that is no sweep; `usual` names the row
    that all others of a sweep are compared with, the one with the paper's own value. Both are empty for a table of the
    paper. `symbol` is what a sweep varies. `title` is a study's own, empty if it has none.
    """

    target: str
    reading: str
    data: str
    command: str
    made: tuple[Maker, ...]
    seeds: int
    caps: tuple[float, ...]
    accounting: Accounting
    rows: tuple[RecordedRow, ...]
    symbol: str = ""
    usual: str = ""
    compared: tuple[tuple[str, str], ...] = ()
    title: str = ""

    @property
    def metric(self) -> Metric:
        """By what the runs are judged."""
        return next((row.metric for row in self.rows if any(run.rows for run in row.runs)), ACCURACY)

    @property
    def missing(self) -> int:
        """How many runs have no final result at the last cap."""
        settled = sum(run.settled(self.caps[-1]) for row in self.rows for run in row.runs)
        return len(self.rows) * self.seeds - settled

    def complete(self, names: Iterable[str], seeds: Iterable[int]) -> bool:
        """Whether these rows have come to their end with each of these seeds."""
        ended = {(row.name, run.seed) for row in self.rows for run in row.runs if run.stopped_by}
        return all((name, seed) in ended for name, seed in product(names, seeds))

    def row(self, name: str) -> RecordedRow | None:
        """The row of this name, if it has runs."""
        return next((row for row in self.rows if row.name == name and row.runs), None)


def recorded_row(planned: PlannedRow, config: Mapping[str, Any], value: float | None) -> RecordedRow:
    """A row as its runs' directories have it; runs that have not begun are left out."""
    runs = tuple(_recorded(planned, run) for run in planned.runs if run.directory.config.is_file())
    return RecordedRow(planned.row.name, planned.row.title, value, config, runs)


def shared_config(planned: PlannedRow, fallback: Any) -> dict[str, Any]:
    """The options of a row's runs, without the seed, as JSON has them."""
    return plain_options(planned.runs[0].config if planned.runs else fallback)


def plain_options(config: Any) -> dict[str, Any]:
    """All options but the seed, as JSON has them."""
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in flatten(config).items()}
    return {name: value for name, value in found.items() if name != "seed"}


def save_record(record: Record, folder: Path) -> None:
    """Write `record.json`, replacing the one before it."""
    write_atomically(folder / RECORD, _text(record).encode())


def load_record(folder: Path) -> Record:
    """The record in a reproduction's directory."""
    path = folder / RECORD
    try:
        return _parsed(json.loads(path.read_text()))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CheckpointError(f"{path} is damaged, or not a reproduction's") from None


def earlier(folder: Path, target: str, reading: str, data: str, rows: Collection[str]) -> Record | None:
    """The record that a directory holds, if any; raises if it holds something else, or a record without its runs."""
    if not occupied(folder):
        return None
    if not (folder / RECORD).is_file():
        raise CheckpointError(f"{folder} is not empty and holds no reproduction: choose another directory")
    found = load_record(folder)
    before, now = (found.target, found.reading, found.data), (target, reading, data)
    if before != now:
        raise CheckpointError(f"{folder} holds another reproduction: {' / '.join(before)}, not {' / '.join(now)}")
    others = [row.name for row in found.rows if row.runs and row.name not in rows]
    if others:
        raise CheckpointError(
            f"{folder} holds runs of other rows, {', '.join(others)}: if they are of another study of this name, "
            "choose another directory with --out"
        )
    runs = [run.path for row in found.rows for run in row.runs]
    if runs and not any((folder / run).is_dir() for run in runs):
        raise CheckpointError(
            f"{folder} holds a record without its runs, {runs[0]} for one, and would lose it: choose another directory"
        )
    return found


def _recorded(planned: PlannedRow, run: PlannedRun) -> RecordedRun:
    directory = run.directory
    summary = directory.finished()
    return RecordedRun(
        planned.row.name,
        run.seed,
        tuple(_points(directory.rows())),
        Path(directory.path.name),
        run.config.accounting,
        directory.cap_reached(),
        summary.stopped_by if summary is not None else "",
    )


def _points(rows: Iterable[Row]) -> Iterable[Point]:
    rows = list(rows)
    for row, seconds in zip(rows, accumulate(row.seconds for row in rows), strict=True):
        if is_known(row.score):
            yield Point(
                row.round,
                row.score,
                known_or_none(row.score_worst),
                known_or_none(row.score_global),
                row.upload_bytes,
                row.upload_bits,
                row.download_bytes,
                round(seconds, 3),
                row.metric,
                row.others,
            )


def _text(record: Record) -> str:
    """The record as JSON, each list of numbers on one line; rare fields are left out if empty."""
    content = {"format": _FORMAT, **{one.name: getattr(record, one.name) for one in fields(record)}}
    for name in ("compared", "title"):
        if not content[name]:
            del content[name]
    content["made"] = [asdict(maker) for maker in record.made]
    content["rows"] = [
        {
            "name": row.name,
            "title": row.title,
            "value": row.value,
            "config": dict(row.config),
            "runs": [_columns(run) for run in row.runs],
        }
        for row in record.rows
    ]
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return re.sub(r"\[[\s\d.,eE+\-nul]*\]", lambda found: "[" + " ".join(found[0][1:-1].split()) + "]", text) + "\n"


def _columns(run: RecordedRun) -> dict[str, Any]:
    about = {"seed": run.seed, "run": run.path.name, "stopped_by": run.stopped_by, "cap_gib": run.cap_gib}
    columns = {name: [getattr(point, field) for point in run.rows] for name, field in _names(run.metric).items()}
    measured = run.rows[0].others if run.rows else {}
    others = {name: [point.others[name] for point in run.rows] for name in measured}
    return noted(about | columns | {"others": others}, run.metric)


def _names(metric: Metric) -> dict[str, str]:
    """The fields of a point, by their names in a record."""
    scores = {score: metric.name + kind for kind, score in SCORES.items()}
    return {scores.get(one.name, one.name): one.name for one in fields(Point) if one.name not in ("metric", "others")}


def _parsed(content: Mapping[str, Any]) -> Record:
    values = dict(content)
    if values.pop("format") != _FORMAT:
        raise ValueError
    rows = tuple(
        RecordedRow(
            row["name"],
            row["title"],
            row["value"],
            row["config"],
            tuple(_run(row["name"], run, values["accounting"]) for run in row["runs"]),
        )
        for row in values.pop("rows")
    )
    made = tuple(Maker(**maker) for maker in values.pop("made"))
    values["compared"] = tuple((first, second) for first, second in values.get("compared", ()))
    return Record(**{**values, "caps": tuple(values["caps"])}, made=made, rows=rows)


def _run(label: str, columns: Mapping[str, Any], accounting: Accounting) -> RecordedRun:
    metric = metric_in(columns)
    points = zip(*(columns[name] for name in _names(metric)), strict=True)
    others = columns.get("others", {})
    return RecordedRun(
        label,
        columns["seed"],
        tuple(
            replace(Point(*numbers), metric=metric, others={name: values[i] for name, values in others.items()})
            for i, numbers in enumerate(points)
        ),
        Path(columns["run"]),
        accounting,
        columns["cap_gib"],
        columns["stopped_by"],
    )
