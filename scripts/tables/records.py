"""Records, and the captions that say which record a table is from and which command makes it."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from feddst.studies.reproduce import Record, load_record
from feddst.studies.reproduce.record import STUDY, RecordedRow
from feddst.studies.tables import pipes

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
MIB = 2**20
_MOVED = {
    "python scripts/compare_coders": "python -m benchmarks.wire.compare_coders",
    "python scripts/bench_flower_rounds": "python -m benchmarks.flower.rounds",
    "python scripts/flower_bytes": "python -m benchmarks.flower.traffic",
    "python scripts/slow_network": "python -m benchmarks.flower.slow_network",
}
"""Scripts that became benches after records were made with them."""
_PLACE = re.compile(
    r" --(?:engine\.(?:kind|device|workers)|commit|device|out|workers) \S+"
    r"|(?<!--data\.dataset folder) --data\.root \S+"
)
"""Options that say where a command ran; the record has them. Images of one's own are not a place but the data."""


@cache
def study(name: str) -> Record:
    """The record of a study or a reproduction; `table3-paper@8,28` is that of `table3-paper` under other caps."""
    folder, _, caps = name.partition("@")
    record = load_record(RESULTS / folder)
    if record.target != STUDY:
        record = replace(record, rows=tuple(map(_to_caps, record.rows)))
    return replace(record, caps=tuple(map(float, caps.split(",")))) if caps else record


def _to_caps(row: RecordedRow) -> RecordedRow:
    """A row of the paper's tables, whose runs end at caps: one cut off after so many rounds says nothing beyond."""
    runs = tuple(replace(run, stopped_by="") if run.stopped_by == "rounds" else run for run in row.runs)
    return replace(row, runs=runs)


def is_made(name: str) -> bool:
    """Whether there is such a record."""
    return (RESULTS / name.partition("@")[0] / "record.json").is_file()


def in_readings(name: str) -> list[str]:
    """The records that a name stands for: its own, or those of a table in its readings, as far as they are made."""
    folder, at, caps = name.partition("@")
    possible = (f"{folder}{reading}{at}{caps}" for reading in ("", "-paper", "-published"))
    found = [one for one in possible if is_made(one)]
    if not found:
        raise ValueError(f"results/ has no record of {folder}")
    return found


@cache
def bench(name: str) -> dict[str, Any]:
    """A record that is one file."""
    found: dict[str, Any] = json.loads((ROOT / f"results/{name}.json").read_text())
    return found


def row_of(record: Record, name: str) -> RecordedRow:
    """A row of a record by its name; it has been made."""
    found = record.row(name)
    if found is None:
        raise ValueError(f"a row of this record is {', '.join(row.name for row in made(record))}, not {name}")
    return found


def made(record: Record) -> list[RecordedRow]:
    """The rows of a record that have runs."""
    return [row for row in record.rows if row.runs]


def today(command: str) -> str:
    """The command that today does what a record's command did."""
    found = re.fullmatch(r"(?:feddst bench |python -m benchmarks\.)(\w+)(?: (.*))?", command)
    if found is not None:
        return f"make bench-{found[1]}" + (f" ARGS='{found[2]}'" if found[2] else "")
    former, space, options = command.partition(".py")
    return _MOVED.get(former, former + space) + options


def made_by(command: str) -> str:
    """A record's commands in short: those of one kind as one with the options that all have, without where they ran."""
    kinds = defaultdict(list)
    for part in command.split("; "):
        head, *options = _PLACE.sub("", part).split(" --")
        kinds[head].append(options)
    shared = {
        head: [option for option in several[0] if all(option in others for others in several)]
        for head, several in kinds.items()
    }
    return " and ".join(f"`{today(' --'.join([head, *options]))}`" for head, options in shared.items())


def study_source(name: str) -> str:
    """Where a study's or a reproduction's table comes from."""
    folder = name.partition("@")[0]
    record = f"the [record](results/{folder}/record.json) of {made_by(study(name).command)}"
    return f"{record} ([all rows](results/{folder}/table.md))"


def source(*names: str) -> str:
    """Where tables come from whose records are one file each."""
    return " and ".join(f"the [record](results/{name}.json) of {made_by(bench(name)['command'])}" for name in names)


def words_table(rows: Sequence[Sequence[str]]) -> str:
    """A table of words, the heading first, aligned to the left."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def caption(*sentences: str) -> str:
    """What stands below a table."""
    return "*" + " ".join(sentence.replace("*", r"\*") for sentence in sentences if sentence) + "*"


def with_caption(rows: Sequence[Sequence[str]], *sentences: str) -> str:
    """A table, the heading first, and its caption."""
    return f"{pipes(rows)}\n\n{caption(*sentences)}"
