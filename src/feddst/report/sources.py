"""What a path given to `feddst report` holds: one run, a directory of runs, or the record of a reproduction."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from feddst.errors import CheckpointError, FeddstError, OptionError
from feddst.options import flatten
from feddst.report.provenance import BUILT_IN, Provenance, provenance
from feddst.runtime.config import RunConfig
from feddst.runtime.details import BINS, Detail
from feddst.runtime.metrics import Accounting, Row
from feddst.runtime.storage import RunDirectory
from feddst.studies.comparison import parse_entry
from feddst.studies.reports import CURVES
from feddst.studies.reproduce.record import RECORD, Point, Record, RecordedRow, RecordedRun, load_record

CONFIG = "config.toml"
Paths = str | Path | Sequence[str | Path]
"""One path, or several."""


@dataclass(frozen=True)
class FoundRun:
    """A run as its directory or a record has it.

    `title` is what a comparison or a record calls it, empty if nothing does; `config` holds its options by dotted
    name, without the seed; `details` is None where the run kept none; `made_with` says whose network and data it had.
    """

    title: str
    path: Path
    seed: int
    config: Mapping[str, Any]
    rows: tuple[Row | Point, ...]
    accounting: Accounting
    cap_gib: float
    finished: bool
    details: tuple[Detail, ...] | None = None
    made_with: Provenance = BUILT_IN


@dataclass(frozen=True)
class Source:
    """The runs at one path, the caps they were compared at, and the command that makes them all, if there is one.

    `python` says that no command can: they were made in Python, with a model or data of their own. Shares are shown
    with so many `decimals`.
    """

    path: Path
    runs: tuple[FoundRun, ...]
    caps: tuple[float, ...] = ()
    command: str = ""
    data: str = ""
    python: bool = False
    decimals: int = 1


def as_paths(given: Paths) -> list[Path]:
    """What was given, as a list; raises if there is nothing."""
    paths = [Path(path) for path in ([given] if isinstance(given, str | Path) else given)]
    if not paths:
        raise OptionError("report needs at least one RUN: a run's directory, a comparison's or a reproduction's")
    return paths


def find(path: Path) -> Source:
    """What is at a path; raises if it holds no run."""
    if (path / RECORD).is_file():
        return _from_record(path)
    if (path / CONFIG).is_file():
        return Source(path, (_alone(path),))
    below = sorted(each.parent for each in path.glob(f"*/{CONFIG}")) if path.is_dir() else []
    if not below:
        what = "a run's directory, a directory of runs, or one with a record.json of `feddst reproduce`"
        found = "which holds no run" if path.is_dir() else "which is no directory"
        raise OptionError(f"RUN must be {what}, got {path}, {found}")
    if (path / CURVES).is_file():
        return _from_comparison(path, below)
    return Source(path, tuple(_alone(each) for each in below))


def _alone(path: Path) -> FoundRun:
    """A run known only by its directory."""
    return replace(_from_directory(path), made_with=provenance(path))


def _from_directory(path: Path, title: str = "") -> FoundRun:
    directory = RunDirectory(path)
    config = directory.stored_config()
    rows = directory.rows()
    _refuse_unsound(path, rows)
    # A round's details are written before its row: those of a killed run may be one round ahead.
    details = [detail for detail in directory.details() if rows and detail.round <= rows[-1].round]
    _refuse_miscounted(directory.details_file, details)
    return FoundRun(
        title=title,
        path=path,
        seed=config.seed,
        config=_options(config),
        rows=tuple(rows),
        accounting=config.accounting,
        cap_gib=directory.cap_reached(),
        finished=directory.finished() is not None,
        details=tuple(details) if details else None,
    )


def _refuse_unsound(path: Path, rows: Sequence[Row]) -> None:
    """Raise at the first impossible score: the file was edited."""
    for row in rows:
        for score in (row.score, row.score_worst):
            if score is None or (isinstance(score, int | float) and (0 <= score <= 1 or not row.metric.percent)):
                continue  # NaN too, where it is no share: the area under a curve may have no value
            raise CheckpointError(f"{path} is damaged: its {row.metric.name} after round {row.round} is {score!r}")


def _refuse_miscounted(path: Path, details: Sequence[Detail]) -> None:
    """Raise at the first count of clients that is not in the steps that all runs count in."""
    for detail in details:
        if detail.clients is not None and len(detail.clients) != BINS:
            raise CheckpointError(
                f"{path} is damaged: round {detail.round} counts clients in {len(detail.clients)} steps, not {BINS}"
            )


def _options(config: RunConfig) -> dict[str, Any]:
    return {name: value for name, value in flatten(config).items() if name != "seed"}


def _from_comparison(path: Path, below: Sequence[Path]) -> Source:
    """A comparison's runs, named and ordered as it has them; directories it does not know come last."""
    try:
        content = json.loads((path / CURVES).read_text())
        config = content["config"]
        entries = [parse_entry(text) for text in config["methods"]]
        titles = {f"{entry.directory}-seed{seed}": entry.label for entry in entries for seed in config["seeds"]}
        caps = tuple(float(cap) for cap in config["caps"])
        command, data = str(content["command"]), str(content["data"])
    except (ValueError, TypeError, KeyError, AttributeError, FeddstError):
        raise CheckpointError(f"{path / CURVES} is damaged, or not a comparison's") from None
    known = {name: place for place, name in enumerate(titles)}
    ordered = sorted(below, key=lambda each: known.get(each.name, len(known)))
    runs = tuple(_from_directory(each, titles.get(each.name, "")) for each in ordered)
    return Source(path, runs, caps, command, data, python=not command)


def _from_record(path: Path) -> Source:
    """A reproduction's runs: from their directories where these are there too, else as the record has them."""
    record = load_record(path)
    runs = tuple(_recorded(path, record, row, run) for row in record.rows for run in row.runs)
    if not runs:
        raise OptionError(f"RUN: no run of {path / RECORD} has begun")
    return Source(path, runs, record.caps, record.command, record.data, python=not record.command, decimals=2)


def _recorded(path: Path, record: Record, row: RecordedRow, run: RecordedRun) -> FoundRun:
    directory = path / run.path.name
    if (directory / CONFIG).is_file():
        return replace(_from_directory(directory), title=row.title)
    return FoundRun(
        title=row.title,
        path=directory,
        seed=run.seed,
        config=row.options,
        rows=run.rows,
        accounting=record.accounting,
        cap_gib=run.cap_gib,
        finished=bool(run.stopped_by),
    )
