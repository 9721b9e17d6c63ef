"""`python -m feddst.studies.reproduce.join OUT FOLDER …` makes one record of several, and its table and figures.

Rows and seeds can thus be made in several processes, or on several machines, each with a directory of its own. If
several records have a run, the one that has come furthest is taken.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from feddst.errors import CheckpointError, FeddstError
from feddst.methods import why_idle
from feddst.runtime.config import RunConfig, method_named
from feddst.runtime.storage import occupied
from feddst.studies.reproduce.carry_out import write_reports
from feddst.studies.reproduce.record import (
    Record,
    RecordedRow,
    RecordedRun,
    commands,
    load_record,
    makers,
    plain_options,
)

T = TypeVar("T")

_SAME = ("target", "reading", "data", "accounting", "symbol", "usual", "title")
"""What records must agree in to be joined."""
_FREE = ("rounds", "cap_gib", "checkpoint_every", "data.root")
"""Options in which runs of a row may differ, besides the engine's: how far they go, and where they are made."""


def joined(records: Sequence[Record]) -> Record:
    """One record with all rows and seeds of these. Raises `CheckpointError` if they are not of the same study."""
    first = records[0]
    for other in records[1:]:
        for name in _SAME:
            one, two = getattr(first, name), getattr(other, name)
            if one != two:
                raise CheckpointError(f"records cannot be joined: {name} is {one!r} in one and {two!r} in another")
    rows = tuple(map(_joined_row, _grouped((row for record in records for row in record.rows), lambda row: row.name)))
    return replace(
        first,
        command=commands(record.command for record in records),
        made=makers(maker for record in records for maker in record.made),
        seeds=len({run.seed for row in rows for run in row.runs}) or first.seeds,
        caps=tuple(sorted({cap for record in records for cap in record.caps})),
        rows=rows,
        compared=tuple(dict.fromkeys(pair for record in records for pair in record.compared)),
    )


def _joined_row(rows: Sequence[RecordedRow]) -> RecordedRow:
    made = [row for row in rows if row.runs] or rows[:1]
    first = deciding(made[0].options)
    for other in made[1:]:
        also = deciding(other.options)
        for name in first | also:
            one, two = first.get(name, "nothing"), also.get(name, "nothing")
            if one != two:
                raise CheckpointError(
                    f"records cannot be joined: row {other.name} has {name} {one!r} in one and {two!r} in another"
                )
    runs = _grouped((run for row in made for run in row.runs), lambda run: run.seed)
    return replace(
        made[0], runs=tuple(max(same, key=_progress) for same in sorted(runs, key=lambda same: same[0].seed))
    )


def _progress(run: RecordedRun) -> tuple[int, bool]:
    """How far a run has come."""
    return (run.rows[-1].round if run.rows else 0), bool(run.stopped_by)


def deciding(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options that runs must share: those that do something for their method, except the free ones.

    An option that a record does not name did not exist then: the runs had today's default.
    """
    options = plain_options(RunConfig()) | dict(config)
    idle = why_idle(method_named(str(config["method"])), options)
    return {
        name: value
        for name, value in options.items()
        if idle(name) is None and name not in _FREE and not name.startswith("engine.")
    }


def _grouped(items: Iterable[T], key: Callable[[T], Any]) -> list[list[T]]:
    """Items with the same key together, in the order in which keys appear."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def main(words: list[str]) -> int:
    """Join the records of all folders but the first into that; returns an exit code."""
    if len(words) < 2:
        print("join: usage: python -m feddst.studies.reproduce.join OUT FOLDER …", file=sys.stderr)
        return 2
    out, *folders = map(Path, words)
    try:
        if occupied(out):
            raise CheckpointError(f"{out} is not empty: choose another directory")
        if len({folder.resolve() for folder in folders}) < len(folders):
            raise CheckpointError("a directory is named twice")
        record = joined([load_record(folder) for folder in folders])
        out.mkdir(parents=True, exist_ok=True)
        write_reports(record, out)
    except (FeddstError, OSError) as error:
        print(f"join: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
