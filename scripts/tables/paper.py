"""The paper's tables and sweeps, made again: beside what it reports, and as far as they have come."""

from collections.abc import Iterator, Sequence

from feddst.runtime.metrics import ACCURACY, GIB
from feddst.runtime.presets import FIGURES, STILL, SWEEPS, TABLES
from feddst.runtime.wording import NOTHING, WAYS, duration
from feddst.studies.reproduce import Record
from feddst.studies.reproduce.paper import PAPER, Reported
from feddst.studies.reproduce.record import Maker, RecordedRow
from feddst.studies.reproduce.table import cell
from feddst.studies.tables import Cell
from scripts.tables.accuracy import (
    READINGS,
    Pair,
    all_caps,
    averages,
    caps,
    marks,
    not_begun,
    paired,
    pairs_of,
    seeds,
    so_far,
    told,
    unmade,
)
from scripts.tables.blocks import block
from scripts.tables.records import RESULTS, in_readings, is_made, made, row_of, study, study_source, with_caption


def reported(target: str, name: str, cap: float) -> Reported | None:
    """What the paper has for a row of one of its tables under a cap; without readjustment it is the same row there."""
    [under] = (table.caps for table in TABLES if table.name == target)
    return PAPER[target][name.removesuffix(STILL)][under.index(cap)] if cap in under else None


@block
def readings(table: str, *names: str) -> str:
    """A table of the paper in both readings, as far as they are made, and as the paper reports it.

    Without names it has all rows that any reading has. A dense row of the published code is the one without
    readjustment.
    """
    found = in_readings(table)
    records = [study(each) for each in found]
    titles = {row.name: row.title for record in records for row in record.rows}
    begun = {row.name.removesuffix(STILL) for record in records for row in made(record)}
    wanted = names or [name for name in titles if name in begun]
    under = all_caps(records)
    rows = [["", *caps(*records)]]
    for record in records:
        for row in (record.row(f"{name}{STILL}") or record.row(name) for name in wanted):
            if row is not None:
                title = f"{row.title}, {READINGS[record.reading]}{so_far(record, row)}"
                rows.append([title, *(str(cell(record, row, cap)) for cap in under)])
    for name in wanted:
        said = (reported(records[0].target, name, cap) for cap in under)
        rows.append([f"{titles[name]}, reported", *map(_mean_and_spread, said)])
    sources = (
        f"{_upper(READINGS[record.reading])}, {record.data}: {study_source(each)}."
        for record, each in zip(records, found, strict=True)
    )
    best = f"Best mean client accuracy [%] under caps on the upload, mean ± standard deviation over {_seeds(records)}."
    missing = [] if names else _missing(records)
    return with_caption(rows, best, marks(rows), *missing, *sources)


def _mean_and_spread(said: Reported | None) -> str:
    return NOTHING if said is None else f"{said.mean:.2f} ± {said.spread:.2f}"


def _upper(words: str) -> str:
    return words[0].upper() + words[1:]


def _seeds(records: Sequence[Record]) -> str:
    if len({record.seeds for record in records}) == 1:
        return seeds(records[0])
    return " and ".join(f"{seeds(record)} ({READINGS[record.reading]})" for record in records)


def _missing(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        yield not_begun(unmade(record), f", {READINGS[record.reading]}")
    yield not_begun([f"the {READINGS[each]}" for each in READINGS if all(each != one.reading for one in records)])


@block
def distances(name: str, *names: str) -> str:
    """How far rows are from what the paper reports, in its standard deviations and in points."""
    record = study(name)
    rows = [["minus what the paper reports", *caps(record)]]
    for each in names:
        row = row_of(record, each)
        found = ((cell(record, row, cap), reported(record.target, each, cap)) for cap in record.caps)
        rows.append([row.title, *(_apart(*pair) for pair in found)])
    return with_caption(
        rows, "Points, and in brackets standard deviations σ of the paper's ten runs.", f"From {study_source(name)}."
    )


def _apart(found: Cell, said: Reported | None) -> str:
    if not found.values or said is None:
        return NOTHING
    return f"{_signed(found.mean - said.mean)} ({_signed(said.distance(found.mean), 1)} σ)"


def _signed(number: float, decimals: int = 2) -> str:
    return f"{number:+.{decimals}f}".replace("-", "−")


@block
def leads(name: str, *words: str) -> str:
    """Paired differences between rows of a table, `one/other` each, and below each what the paper has there."""
    record = study(name)
    found = list(pairs_of(record, words))
    cells, over = told([pair.gains(record.caps) for pair in found])
    rows = [["difference", *caps(record)]]
    for pair, line in zip(found, cells, strict=True):
        rows += [[pair.title(alone=False), *line], ["the same, reported", *_reported_lead(pair)]]
    return with_caption(rows, f"{paired(ACCURACY)} over {over}.", marks(rows), f"From {study_source(name)}.")


def _reported_lead(pair: Pair) -> Iterator[str]:
    for cap in pair.record.caps:
        one, other = (reported(pair.record.target, name, cap) for name in (pair.one, pair.other))
        yield NOTHING if one is None or other is None else _signed(one.mean - other.mean)


@block
def options_apart(name: str, one: str, other: str) -> str:
    """The options in which two rows differ."""
    record = study(name)
    rows = [row_of(record, each) for each in (one, other)]
    first, second = (row.config for row in rows)
    names = [option for option in {**first, **second} if first.get(option) != second.get(option)]
    lines = [[f"`{option}`", *(f"{row.config.get(option, NOTHING)}" for row in rows)] for option in names]
    return with_caption([["option", *(row.title for row in rows)], *lines], f"From {study_source(name)}.")


@block
def seeds_apart(name: str, *names: str) -> str:
    """Where single seeds end: for rows whose mean hides how different they are."""
    record = study(name)
    cap = record.caps[-1]
    rows = [[f"at {cap:g} GiB", "worst seed", "second worst", "median", "best", "mean"]]
    for each in names:
        row = row_of(record, each)
        ends = sorted(row.best(cap).values())
        middle = (ends[0], ends[1], (ends[(len(ends) - 1) // 2] + ends[len(ends) // 2]) / 2, ends[-1])
        rows.append([row.title, *(f"{end:.1f}" for end in middle), str(cell(record, row, cap))])
    return with_caption(rows, f"Best mean client accuracy [%], {seeds(record)}.", f"From {study_source(name)}.")


@block
def sweeps(data: str) -> str:
    """The paper's sweeps on a data set, as far as they have come: values beside the paper's own, which is bold."""
    wanted = {f"{sweep.name}-{data}": sweep for sweep in SWEEPS if data in sweep.shown_on}
    names = [name for name in wanted if is_made(name)]
    records = [study(name) for name in names]
    rows, over = _beside_the_usual(records)
    best = f"{records[0].data}: best mean client accuracy [%] under caps on the upload, {WAYS[records[0].accounting]}"
    absent = [f"the sweep over {sweep.symbol}" for name, sweep in wanted.items() if name not in names]
    return with_caption(
        rows,
        f"{best}; {averages(max(record.seeds for record in records))}.",
        f"{paired(ACCURACY)} over {over}.",
        marks(rows),
        not_begun([*(title for record in records for title in unmade(record)), *absent]),
        f"From {', '.join(map(study_source, names))}.",
    )


def _beside_the_usual(records: Sequence[Record]) -> tuple[list[list[str]], str]:
    """Sweeps as one table, under the caps that a value of their own has reached; and over how many seeds it is."""
    lines = [(record, row) for record in records for row in made(record)]
    reached = [cap for record, row in lines if row.name != record.usual for cap in record.caps if row.best(cap)]
    under = sorted(set(reached)) or all_caps(records)[:1]
    heading = [f"{cap:g} GiB{less}" for cap in under for less in ("", ", minus the bold")]
    rows = [["FedDST with", *heading, f"rounds under {under[0]:g} GiB"]]
    pairs = [Pair(record, row.name, record.usual) for record, row in lines]
    gains, over = told([[None] * len(under) if one.one == one.other else one.gains(under) for one in pairs])
    for (record, row), gained in zip(lines, gains, strict=True):
        bold = "**" * (row.name == record.usual)
        words = [word for cap, gain in zip(under, gained, strict=True) for word in (str(cell(record, row, cap)), gain)]
        rows.append([f"{bold}{row.title}{bold}{so_far(record, row)}", *words, _rounds(record, row, under[0])])
    return rows, over


def _rounds(record: Record, row: RecordedRow, cap: float) -> str:
    """The last round with an evaluation under a cap."""
    settled = [run for run in row.runs if run.settled(cap)]
    under = [one.round for run in settled for one in run.rows if one.upload(record.accounting) <= cap * GIB]
    return f"{max(under)}" if under else NOTHING


@block
def took(*names: str) -> str:
    """How long reproductions took, and on what: those named, or all.

    Rows that a record has borrowed from one above it are counted there.
    """
    rows = [["record", "rows", "seeds", "time", "on"]]
    makers: set[Maker] = set()
    curves: set[object] = set()
    for name in names or _reproductions():
        record = study(name)
        own = [maker for maker in record.made if maker not in makers]
        played = [each for each in (tuple(run.rows for run in row.runs) for row in made(record)) if each not in curves]
        makers.update(own)
        curves.update(played)
        if own:
            times = " + ".join(duration(maker.seconds) if maker.seconds else NOTHING for maker in own)
            devices = ", ".join(dict.fromkeys(maker.device for maker in own))
            link = f"[{name}](results/{name}/record.json)"
            rows.append([link, f"{len(played)}", f"{record.seeds}", times, devices])
    return with_caption(
        rows,
        "Wall-clock time of each call that the record was made with.",
        "Rows that a record has from another are counted there.",
    )


def _reproductions() -> list[str]:
    """The records of the paper's tables, then of its figures."""
    names = sorted(path.parent.name for path in RESULTS.glob("*/record.json"))
    return [name for kind in (*TABLES, *FIGURES) for name in names if name.startswith(f"{kind.name}-")]
