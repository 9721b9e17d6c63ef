"""Carrying out a reproduction: row by row, all seeds of a row side by side, finished runs skipped, others resumed."""

import logging
import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from feddst import __version__
from feddst.data import Dataset, load
from feddst.errors import CheckpointError, DataError, TrainingError
from feddst.options import as_words, flatten
from feddst.runtime.lock import locked
from feddst.runtime.machine import commit, device
from feddst.runtime.storage import write_atomically
from feddst.studies.reproduce.figures import draw_figures
from feddst.studies.reproduce.plan import PlannedRow, plan
from feddst.studies.reproduce.playing import play_rows
from feddst.studies.reproduce.progress import Overall, Overseer, ProgressLines
from feddst.studies.reproduce.record import (
    Maker,
    Record,
    RecordedRow,
    commands,
    earlier,
    makers,
    recorded_row,
    save_record,
    shared_config,
)
from feddst.studies.reproduce.request import Request
from feddst.studies.reproduce.table import TABLE, markdown

log = logging.getLogger(__name__)

_EACH_CALL = ("minutes", "at_once")
"""Options that say nothing about the result."""


def reproduce(
    config: Request,
    *,
    out: str | Path,
    data: Dataset | None = None,
    changes: Mapping[str, Any] | None = None,
    overseer: Overseer | None = None,
) -> Record:
    """Make a table or figure of the paper, or a study, or go on with it, and return its record.

    Every run has a directory under `out`; `record.json`, `table.md` and the figures there are made again at the end of
    each call, from what there is. `data` replaces the target's data set, and `changes` some options: the record is
    then a different one.
    """
    config.check()
    path, changes = Path(out), changes or {}
    _earlier(config, path, data, changes)  # refuses a directory that holds something else
    with locked(path):
        return _reproduce(config, path, data, changes, overseer)


def _reproduce(
    config: Request, path: Path, data: Dataset | None, changes: Mapping[str, Any], overseer: Overseer | None
) -> Record:
    began = time.monotonic()
    described, before = _described(config, data, changes), _earlier(config, path, data, changes)
    rows = plan(config, path, changes)
    own = command(config) if data is None and not changes else ""
    record = _empty(config, described, before, own)
    failure: TrainingError | None = None
    if any(row.unfinished for row in rows):
        dataset = _load(config, rows) if data is None else data
        maker = Maker(commit() or f"version {__version__}", device(config.engine), torch.__version__)
        record = replace(record, command=commands([record.command, own]), made=makers([*record.made, maker]))
        _begin(record, path)
        overall = Overall(rows, overseer or ProgressLines(), _deadline(config.minutes))
        try:
            failure = play_rows([row for row in rows if row.unfinished], dataset, overall, config.at_once)
        except CheckpointError:
            write_reports(replace(record, **_found(config, rows, changes)), path)
            raise
        seconds = time.monotonic() - began
        record = replace(record, made=makers([*record.made, replace(maker, seconds=seconds)]))
    record = replace(record, **_found(config, rows, changes))
    write_reports(record, path)
    if failure is not None:
        raise failure
    return record


def write_reports(record: Record, folder: Path) -> None:
    """Write the record, and what follows from it: the table and the figures."""
    save_record(record, folder)
    pictures: list[str] = []
    try:
        pictures = draw_figures(record, folder)
    except ImportError:
        log.warning("figures were not drawn, because matplotlib is missing: pip install 'feddst[report]'")
    write_atomically(folder / TABLE, markdown(record, pictures).encode())


def command(config: Request) -> str:
    """The command line that stands for a config: what differs from the defaults."""
    usual = flatten(type(config)(config.target))
    changed = {name: value for name, value in flatten(config).items() if value != usual[name]}
    words = {name: value for name, value in changed.items() if name not in _EACH_CALL}
    return shlex.join(["feddst", config.command, config.target, *as_words(words)])


def _earlier(config: Request, path: Path, data: Dataset | None, changes: Mapping[str, Any]) -> Record | None:
    described, names = _described(config, data, changes), [row.name for row in config.all_rows()]
    return earlier(path, config.subject, config.reading, described, names)


def _described(config: Request, data: Dataset | None, changes: Mapping[str, Any]) -> str:
    """The data in words, and what else differs."""
    instead = f"{data.name} in place of " if data is not None else ""
    changed = ", ".join(f"{name}={value}" for name, value in changes.items())
    return f"{instead}{config.describe_data()}{changed and ', with ' + changed}"


def _load(config: Request, rows: Sequence[PlannedRow]) -> Dataset:
    wanted = next(
        row.unfinished[0].config.data for row in rows if row.unfinished
    ).unaugmented  # rows make their own versions
    dataset = load(wanted)
    classes, found = config.classes, dataset.num_classes
    if config.data.dataset == "folder" and classes is not None and found != classes:
        raise DataError(f"data.root: {config.data.root} has {found} classes, but {config.data_title} has {classes}")
    return dataset


def _deadline(minutes: float) -> float:
    return time.monotonic() + 60 * minutes if minutes else math.inf


def _empty(config: Request, data: str, before: Record | None, own: str) -> Record:
    """The record before anything is played; `own` is the command line of this call."""
    rows = before.rows if before is not None else ()
    return Record(
        target=config.subject,
        reading=config.reading,
        data=data,
        command=before.command if before is not None else own,
        made=before.made if before is not None else (),
        seeds=_seeds(config, rows),
        caps=config.upload_caps,
        accounting=config.run_config(config.all_rows()[0], 0).accounting,
        rows=rows,
        symbol=config.varied[1],
        usual=config.usual_row,
        compared=config.compared,
        title=config.title,
    )


def _seeds(config: Request, rows: Sequence[RecordedRow]) -> int:
    """How many seeds every row should have: those of any row, and those asked for."""
    return len({run.seed for row in rows for run in row.runs} | set(config.wanted_seeds()))


def _begin(record: Record, path: Path) -> None:
    """Mark the directory as the reproduction's."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot create {path}: {error.strerror or error}") from None
    save_record(record, path)


def _found(config: Request, rows: Sequence[PlannedRow], changes: Mapping[str, Any]) -> dict[str, Any]:
    """What the directories hold now, as parts of a record."""
    option, _ = config.varied
    recorded = tuple(
        recorded_row(row, shared_config(row, config.run_config(row.row, 0, changes)), row.row.own.get(option))
        for row in rows
    )
    return {"rows": recorded, "seeds": _seeds(config, recorded)}
