"""Accuracies and differences of reproductions and studies."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from feddst.core.metric import Metric
from feddst.runtime.metrics import ACCURACY, GIB
from feddst.runtime.wording import NOTHING, WAYS
from feddst.studies.reproduce import Record
from feddst.studies.reproduce.paired import Difference, paired_difference, pairs
from feddst.studies.reproduce.record import STUDY, RecordedRow
from feddst.studies.reproduce.table import cell, difference
from feddst.studies.tables import Cell, meanings
from scripts.tables.blocks import block
from scripts.tables.records import in_readings, made, row_of, study, study_source, with_caption

READINGS = {"paper": "paper's text", "published": "published code"}


def named(word: str) -> tuple[str, str]:
    """A row's name, and the title that a page gives it: `sprout` or `sprout: Sprout, thrifty`."""
    name, _, title = word.partition(": ")
    return name, title


def caps(*records: Record) -> list[str]:
    """The heading of a table over upload caps."""
    return [f"{cap:g} GiB" for cap in all_caps(records)]


def all_caps(records: Iterable[Record]) -> list[float]:
    """The upload caps that any of these has."""
    return sorted({cap for record in records for cap in record.caps})


def counted_seeds(count: int) -> str:
    """How many seeds there are."""
    return f"{count} seeds" if count > 1 else "one seed"


def seeds(record: Record) -> str:
    """How many seeds a row of a record should have."""
    return counted_seeds(record.seeds)


def reached(record: Record, row: RecordedRow) -> list[str]:
    """What a row reached under each cap."""
    return [str(cell(record, row, cap)) for cap in record.caps]


def so_far(record: Record, row: RecordedRow) -> str:
    """How far a row's runs have come if it is not at the last cap, and how many there are.

    A study's runs may be complete after so many rounds; those of the paper's tables go on to the caps.
    """
    cap = record.caps[-1]
    whole = [run.settled(cap) and (record.target == STUDY or not run.ended_before(cap)) for run in row.runs]
    if len(whole) == record.seeds and all(whole):
        return ""
    ends = [f"{end:.3g}" for end in sorted(run.cap_gib or run.uploaded / GIB for run in row.runs)]
    few = f", {len(ends)} of {record.seeds} seeds" if len(ends) < record.seeds else ""
    return f" (to {'–'.join(dict.fromkeys((ends[0], ends[-1])))} GiB{few})"


def unmade(record: Record) -> list[str]:
    """The titles of the rows that have no runs yet."""
    return [row.title for row in record.rows if not row.runs]


def not_begun(titles: Sequence[str], which: str = "") -> str:
    """The sentence that names what has no runs yet, if anything."""
    return f"Not begun{which}: {', '.join(titles)}." if titles else ""


def paired(metric: Metric) -> str:
    """What stands in the cells of a table of differences."""
    good = "" if metric.higher_is_better else ", of which less is better,"
    unit = "points" if metric.percent else metric.name + good
    return f"Differences in {unit} on the same seeds, with 95 % bootstrap intervals"


def marks(rows: Sequence[Sequence[str]]) -> str:
    """What the marks in a table mean, for those that occur."""
    return "".join(f" {meaning}." for meaning in meanings(word for row in rows for word in row[1:]))[1:]


def averages(count: int) -> str:
    """What stands in the cells of a table of accuracies over so many seeds."""
    return f"mean ± standard deviation over {counted_seeds(count)}" if count > 1 else counted_seeds(count)


@block
def accuracies(name: str, *words: str) -> str:
    """A table of accuracies, or of what else a study goes by: all rows that are made, or those named.

    A sweep's usual value is bold.
    """
    record = study(name)
    wanted = [named(word) for word in words] or [(row.name, "") for row in made(record)]
    rows = [["", *caps(record)]]
    for key, title in wanted:
        row = row_of(record, key)
        bold = "**" * (key == record.usual)
        rows.append([f"{bold}{title or row.title}{bold}{so_far(record, row)}", *reached(record, row)])
    return with_caption(
        rows, under_caps(record, f"best {client(record.metric)}"), marks(rows), f"From {study_source(name)}."
    )


@block
def accuracies_besides(name: str) -> str:
    """A table of accuracies of all rows that are judged by another metric: where that is best."""
    record = study(name)
    rows = [["", *caps(record)]]
    rows += [[row.title, *(str(_besides(record, row, cap)) for cap in record.caps)] for row in made(record)]
    where = f"{client(ACCURACY)} where the {record.metric.name} is best"
    return with_caption(rows, under_caps(record, where), f"From {study_source(name)}.")


def _besides(record: Record, row: RecordedRow, cap: float) -> Cell:
    """The accuracy of a row's runs under a cap, each where its own score is best."""
    under = [[point for point in run.rows if point.upload(record.accounting) <= cap * GIB] for run in row.runs]
    best = [max(points, key=lambda point: record.metric.merit(point.score)) for points in under if points]
    found = tuple(ACCURACY.shown(point.others[ACCURACY.name]) for point in best)
    return Cell(found, partial=len(found) < record.seeds, decimals=2)


def client(metric: Metric) -> str:
    """A metric as the mean over clients, with its unit."""
    return f"mean client {metric.heading}"


def under_caps(record: Record, what: str) -> str:
    """What stands in the cells of a table over caps."""
    return f"{record.data}: {what} under caps on the upload, {WAYS[record.accounting]}; {averages(record.seeds)}."


@dataclass(frozen=True)
class Pair:
    """Two rows of a record that are set against each other; `own` is the title that a page gives them, if any."""

    record: Record
    one: str
    other: str
    own: str = ""

    @property
    def against(self) -> str:
        """The title of the row that is taken away."""
        return row_of(self.record, self.other).title

    def title(self, alone: bool) -> str:
        """The title of the first row alone, or of both."""
        one = row_of(self.record, self.one).title
        return self.own or (one if alone else f"{one} − {self.against}")

    def gains(self, under: Iterable[float]) -> list[Difference | None]:
        """One less the other under each of these caps."""
        return [difference(self.record, self.one, self.other, cap) for cap in under]


@block
def differences(name: str, *words: str) -> str:
    """A table of paired differences, `one/other` each; `*/other` is all that the record sets against that row.

    Without words it is all that the record sets against each other, and has a seed in common. A table's name stands for
    its records in both readings, as far as they are made.
    """
    names = in_readings(name)
    records = [study(each) for each in names]
    found = [pair for record in records for pair in pairs_of(record, words)]
    against = {pair.against for pair in found}
    alone = len(against) == 1
    cells, over = told([pair.gains(all_caps(records)) for pair in found])
    rows = [[f"minus {against.pop()}" if alone else "difference", *caps(*records)]]
    for pair, line in zip(found, cells, strict=True):
        rows.append([pair.title(alone) + of_reading(pair.record, len(names) > 1), *line])
    return with_caption(
        rows,
        f"{paired(records[0].metric)} over {over}.",
        marks(rows),
        f"From {' and '.join(map(study_source, names))}.",
    )


def pairs_of(record: Record, words: Sequence[str]) -> Iterator[Pair]:
    """The pairs that these words stand for."""
    for key, title in map(named, words or ["*/*"]):
        one, _, other = key.partition("/")
        if one == "*":
            several = (Pair(record, first, second) for first, second in pairs(record) if other in (second, "*"))
            yield from (pair for pair in several if any(pair.gains(record.caps)))
        else:
            yield Pair(record, one, other, title)


def told(gains: Sequence[Sequence[Difference | None]]) -> tuple[list[list[str]], str]:
    """Differences in words, and over how many seeds they are; one over fewer seeds says so itself."""
    most = max((gain.seeds for line in gains for gain in line if gain is not None), default=0)

    def words(gain: Difference | None) -> str:
        if gain is None:
            return NOTHING
        return str(gain) + (f" ({counted_seeds(gain.seeds)})" if 1 < gain.seeds < most else "")

    return [[words(gain) for gain in line] for line in gains], counted_seeds(most)


def of_reading(record: Record, several: bool) -> str:
    """Which reading a row is of, where there are several."""
    return f", {READINGS[record.reading]}" if several else ""


@block
def between(first: str, second: str, *words: str) -> str:
    """The same rows of two records: the first less the second, under the caps that both have.

    Without words it is every row in which both have a seed in common. A table's name stands for its records in both
    readings, of which each is set against the same reading.
    """
    others = {study(each).reading: each for each in in_readings(second)}
    both = [(each, others[study(each).reading]) for each in in_readings(first) if study(each).reading in others]
    shared = [cap for cap in study(both[0][0]).caps if all(cap in study(each).caps for pair in both for each in pair)]
    titles, gains = [], []
    for one, other in ((study(one), study(other)) for one, other in both):
        for key, title in map(named, words or (row.name for row in made(one) if other.row(row.name))):
            rows = row_of(one, key), row_of(other, key)
            line = [paired_difference(*(row.best(cap) for row in rows)) for cap in shared]
            if words or any(line):
                titles.append((title or rows[0].title) + of_reading(one, len(both) > 1))
                gains.append(line)
    cells, over = told(gains)
    sources = "; ".join(f"{study_source(one)}, less {study_source(other)}" for one, other in both)
    return with_caption(
        [
            ["", *(f"{cap:g} GiB" for cap in shared)],
            *([title, *line] for title, line in zip(titles, cells, strict=True)),
        ],
        f"{paired(study(both[0][0]).metric)} over {over}: {sources}.",
    )
