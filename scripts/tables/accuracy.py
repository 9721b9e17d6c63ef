"""Accuracies and differences of reproductions and studies."""

from collections.abc import Iterator, Sequence

from feddst.runtime.wording import NOTHING, WAYS, duration
from feddst.studies.reproduce import Record
from feddst.studies.reproduce.paired import paired_difference
from feddst.studies.reproduce.paper import PAPER
from feddst.studies.reproduce.record import RecordedRow
from feddst.studies.reproduce.table import cell, difference
from feddst.studies.tables import Cell, meanings
from scripts.tables.blocks import block
from scripts.tables.records import made, row_of, study, study_source, with_caption

STILL = "-still"
"""Ends the names of dense rows as the published code has them, but without its readjustment."""
_PAIRED = "Differences in points on the same seeds, with 95 % bootstrap intervals"


def named(word: str) -> tuple[str, str]:
    """A row's name, and the title that a page gives it: `sprout` or `sprout: Sprout, thrifty`."""
    name, _, title = word.partition(": ")
    return name, title


def caps(record: Record) -> list[str]:
    """The heading of a table over upload caps."""
    return [f"{cap:g} GiB" for cap in record.caps]


def seeds(record: Record) -> str:
    """How many seeds there are."""
    return f"{record.seeds} seeds" if record.seeds > 1 else "one seed"


def reached(record: Record, row: RecordedRow) -> list[str]:
    """What a row reached under each cap."""
    return [str(cell(record, row, cap)) for cap in record.caps]


def marks(rows: Sequence[Sequence[str]]) -> str:
    """What the marks in a table mean, for those that occur."""
    return "".join(f" {meaning}." for meaning in meanings(word for row in rows for word in row[1:]))[1:]


@block
def accuracies(name: str, *words: str) -> str:
    """A table of accuracies: all rows that have been made, or those named; a sweep's usual value is bold."""
    record = study(name)
    wanted = [named(word) for word in words] or [(row.name, "") for row in made(record)]
    rows = [["", *caps(record)]]
    for key, title in wanted:
        row = row_of(record, key)
        bold = "**" * (key == record.usual)
        rows.append([f"{bold}{title or row.title}{bold}", *reached(record, row)])
    over = f"mean ± standard deviation over {seeds(record)}" if record.seeds > 1 else seeds(record)
    way = WAYS[record.accounting]
    best = f"{record.data}: best mean client accuracy [%] under caps on the upload, {way}; {over}."
    return with_caption(rows, best, marks(rows), f"From {study_source(name)}.")


@block
def differences(name: str, *words: str) -> str:
    """A table of paired differences, `one/other` each; `*/other` is all that the study sets against that row."""
    record = study(name)
    pairs = list(_pairs(record, words))
    others = {other for _, other, _ in pairs}
    against = len(others) == 1
    rows = [[f"minus {_title(record, others.pop())}" if against else "difference", *caps(record)]]
    for one, other, title in pairs:
        usual = _title(record, one) if against else f"{_title(record, one)} − {_title(record, other)}"
        rows.append([title or usual, *_gains(record, one, other)])
    return with_caption(rows, f"{_PAIRED} over {seeds(record)}.", marks(rows), f"From {study_source(name)}.")


def _pairs(record: Record, words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    for word in words:
        key, title = named(word)
        one, _, other = key.partition("/")
        if one == "*":
            compared = [first for first, second in record.compared if second == other and record.row(first)]
            yield from ((first, other, "") for first in compared)
        else:
            yield one, other, title


def _title(record: Record, name: str) -> str:
    return row_of(record, name).title


def _gains(record: Record, one: str, other: str) -> list[str]:
    found = [difference(record, one, other, cap) for cap in record.caps]
    return [NOTHING if gain is None else str(gain) for gain in found]


@block
def readings(table: str, *names: str) -> str:
    """A table of the paper in both readings, and as the paper reports it.

    A dense row of the published code is the one without readjustment.
    """
    records = {"paper's text": study(f"{table}-paper"), "published code": study(f"{table}-published")}
    text = records["paper's text"]
    rows = [["", *caps(text)]]
    for words, record in records.items():
        for name in names:
            row = record.row(f"{name}{STILL}") or record.row(name)
            if row is not None:
                rows.append([f"{row.title}, {words}", *reached(record, row)])
    for name in names:
        said = [f"{one.mean:.2f} ± {one.spread:.2f}" for one in PAPER[table][name]]
        rows.append([f"{_title(text, name)}, reported", *said])
    over = f"Best mean client accuracy [%] under caps on the upload, mean ± standard deviation over {_counts(records)}."
    sources = (
        f"{words[0].upper()}{words[1:]}, {record.data}: {study_source(f'{table}-{record.reading}')}."
        for words, record in records.items()
    )
    return with_caption(rows, over, marks(rows), *sources)


def _counts(records: dict[str, Record]) -> str:
    if len({record.seeds for record in records.values()}) == 1:
        return seeds(next(iter(records.values())))
    return " and ".join(f"{seeds(record)} ({words})" for words, record in records.items())


@block
def distances(name: str, *names: str) -> str:
    """How far rows are from what the paper reports, in its standard deviations and in points."""
    record = study(name)
    rows = [["minus what the paper reports", *caps(record)]]
    for each in names:
        row = row_of(record, each)
        told = []
        for cap, said in zip(record.caps, PAPER[record.target][each.removesuffix(STILL)], strict=True):
            found = cell(record, row, cap)
            told.append(_apart(found, said.mean, said.spread))
        rows.append([row.title, *told])
    return with_caption(
        rows, "Points, and in brackets standard deviations σ of the paper's ten runs.", f"From {study_source(name)}."
    )


def _apart(found: Cell, mean: float, spread: float) -> str:
    if not found.values:
        return NOTHING
    points = found.mean - mean
    return f"{points:+.2f} ({points / spread:+.1f} σ)".replace("-", "−")


@block
def seeds_apart(name: str, *names: str) -> str:
    """Where single seeds end: for rows whose mean hides how different they are."""
    record = study(name)
    cap = record.caps[-1]
    rows = [[f"at {cap:g} GiB", "worst seed", "second worst", "median", "best", "mean"]]
    for each in names:
        row = row_of(record, each)
        ends = sorted(row.best(cap).values())
        told = (ends[0], ends[1], (ends[(len(ends) - 1) // 2] + ends[len(ends) // 2]) / 2, ends[-1])
        rows.append([row.title, *(f"{end:.1f}" for end in told), str(cell(record, row, cap))])
    return with_caption(rows, f"Best mean client accuracy [%], {seeds(record)}.", f"From {study_source(name)}.")


@block
def between(first: str, second: str, *words: str) -> str:
    """The same rows of two records: the first less the second, under the caps that both have."""
    one, other = study(first), study(second)
    shared = [cap for cap in one.caps if cap in other.caps]
    rows = [["", *(f"{cap:g} GiB" for cap in shared)]]
    for key, title in map(named, words):
        pairs = [(row_of(one, key).best(cap), row_of(other, key).best(cap)) for cap in shared]
        gains = [paired_difference(*pair) for pair in pairs]
        rows.append([title or _title(one, key), *(NOTHING if gain is None else str(gain) for gain in gains)])
    return with_caption(rows, f"{_PAIRED}: {study_source(first)}, less {study_source(second)}.")


@block
def took(*names: str) -> str:
    """How long reproductions took, and on what."""
    rows = [["record", "rows", "seeds", "time", "on"]]
    for name in names:
        record = study(name)
        played = len(made(record))
        times = " + ".join(duration(maker.seconds) for maker in record.made)
        devices = ", ".join(dict.fromkeys(maker.device for maker in record.made))
        rows.append([f"[{name}](results/{name}/record.json)", f"{played}", f"{record.seeds}", times, devices])
    return with_caption(rows, "Wall-clock time of each call that the record was made with.")
