"""`python -m feddst.studies.reproduce.borrow OUT FIGURE FOLDER` begins a figure's record with a table's runs.

A figure has rows that its data set's table has too, run for run. They need not be made twice: the record in FOLDER, of
a table, has their curves. Rows that the table does not have can be made by `feddst reproduce FIGURE` in a directory of
their own, and joined.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from feddst.errors import CheckpointError, FeddstError, OptionError
from feddst.options import one_of, updated
from feddst.runtime.presets import FIGURES, TABLES, Row
from feddst.runtime.storage import occupied
from feddst.studies.reproduce.carry_out import write_reports
from feddst.studies.reproduce.config import ReproduceConfig
from feddst.studies.reproduce.join import deciding
from feddst.studies.reproduce.record import Record, RecordedRow, load_record, plain_options
from feddst.studies.reproduce.request import Source


def borrowed(record: Record, figure: str) -> Record:
    """The record of a figure, with the runs of those of its rows that a table's record has."""
    config = figure_beside(record, figure)
    made = {_meaning(row.options): row for row in record.rows if row.runs}
    rows = tuple(_borrowed_row(config, row, made) for row in config.all_rows())
    if not any(row.runs for row in rows):
        raise CheckpointError(f"the record of {record.target} has no runs of {figure}")
    return replace(
        record,
        target=config.target,
        seeds=len({run.seed for row in rows for run in row.runs}),
        caps=config.upload_caps,
        rows=rows,
        symbol=config.varied[1],
        usual=config.usual_row,
        compared=config.compared,
    )


def figure_beside(record: Record, figure: str) -> ReproduceConfig:
    """The request for the figure on the data of a table's record."""
    names = [each.name for each in FIGURES]
    if figure not in names:
        raise OptionError(f"FIGURE must be {one_of(names)}, got {figure!r}")
    table = next((table for table in TABLES if table.name == record.target), None)
    if table is None:
        raise CheckpointError(f"rows are borrowed from the record of a table, got one of {record.target}")
    first = record.rows[0].config
    own = first["data.dataset"] == "folder"
    source = Source("folder", str(first["data.root"])) if own else Source()
    asked = updated(ReproduceConfig(figure, data=source), {"reading": record.reading, "on": table.dataset})
    asked.check()
    return asked


def _borrowed_row(config: ReproduceConfig, row: Row, made: Mapping[str, RecordedRow]) -> RecordedRow:
    options = plain_options(config.run_config(row, 0))
    found = made.get(_meaning(options))
    runs = () if found is None else tuple(replace(run, label=row.name) for run in found.runs)
    return RecordedRow(row.name, row.title, row.own.get(config.varied[0]), options, runs)


def _meaning(config: Mapping[str, Any]) -> str:
    """What decides a run's weights, as text: equal for two rows whose runs are the same."""
    options = deciding(config)
    if options.get("readjust.after_epoch") == 0:  # after the last
        options["readjust.after_epoch"] = options["local.epochs"]
    return repr(sorted(options.items()))


def main(words: Sequence[str]) -> int:
    """Write the figure's record, its table and its pictures; returns an exit code."""
    if len(words) != 3:
        print("borrow: usage: python -m feddst.studies.reproduce.borrow OUT FIGURE FOLDER", file=sys.stderr)
        return 2
    out = Path(words[0])
    try:
        if occupied(out):
            raise CheckpointError(f"{out} is not empty: choose another directory")
        record = borrowed(load_record(Path(words[2])), words[1])
        out.mkdir(parents=True, exist_ok=True)
        write_reports(record, out)
    except (FeddstError, OSError) as error:
        print(f"borrow: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
