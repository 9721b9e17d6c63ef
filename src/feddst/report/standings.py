"""Results: the best score of each entry under caps on the upload, as a table and in plain words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import mean, stdev

from feddst.core.metric import Metric
from feddst.errors import OptionError
from feddst.methods import METHODS
from feddst.report.curves import Axis, against
from feddst.report.entries import Entry
from feddst.report.sources import Source
from feddst.runtime.metrics import ACCURACY, GIB, Accounting, Row, is_known
from feddst.runtime.wording import WAYS, counted
from feddst.studies.comparison import Curve
from feddst.studies.reproduce.paired import paired_difference
from feddst.studies.reproduce.record import Point
from feddst.studies.tables import Cell, decimals_of, meanings, reaching

FEW = 5
"""So many entries are all named in the first sentence; of more, only the best, the next and the last."""
UNFINISHED = "…"
DENSE = {"local", "server", "proximal", "adaptive"}
"""Groups of options that a method may have and still train and send all weights."""
UNITS = {"MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True)
class Cap:
    """A cap on the upload, and how it is written."""

    gib: float
    label: str


@dataclass(frozen=True)
class Basis:
    """What uploads are compared by: a way to count, and caps, rising; `given` if the user asked for these caps.

    Scores are values of `metric`, shown with so many `decimals`; None: with four digits.
    """

    accounting: Accounting
    caps: tuple[Cap, ...]
    given: bool
    decimals: int | None = 1
    metric: Metric = ACCURACY

    @property
    def last_given(self) -> Cap | None:
        """The largest cap that the user asked for."""
        return self.caps[-1] if self.given else None


def basis(sources: Sequence[Source], entries: Sequence[Entry]) -> Basis:
    """The way to count that all runs have, or else bytes as sent, with the caps given for it or two of our own."""
    ways = {run.accounting for entry in entries for run in entry.runs}
    accounting: Accounting = ways.pop() if len(ways) == 1 else "measured"
    given = {cap for source in sources for cap in source.caps if source.runs[0].accounting == accounting}
    metric = metric_of(entries)
    decimals = decimals_of(metric, max(source.decimals for source in sources))
    if given:
        return Basis(accounting, tuple(Cap(cap, f"{cap:g} GiB") for cap in sorted(given)), True, decimals, metric)
    return Basis(accounting, _own_caps(entries, accounting), False, decimals, metric)


def metric_of(entries: Sequence[Entry]) -> Metric:
    """By what all these runs are judged. Raises `OptionError` if that differs: their scores cannot stand together."""
    known = {run.rows[0].metric: run.path for entry in entries for run in entry.runs if run.rows}
    if len(known) > 1:
        found = ", ".join(f"{path} by {metric.name}" for metric, path in known.items())
        raise OptionError(f"RUN must be runs that are judged by the same metric, got {found}: make a report of each")
    return next(iter(known), ACCURACY)


def table(entries: Sequence[Entry], found: Basis) -> list[list[str]]:
    """The table as text, a heading first: an entry a row; caps, the whole run and what was sent as columns."""
    largest = max((row.upload_bytes for entry in entries for row in entry.ends), default=0)
    unit = "GiB" if largest >= 2 * UNITS["GiB"] else "MiB"
    heading = ["method", *(cap.label for cap in found.caps), "whole run", "worst tenth", f"{unit} up", f"{unit} down"]
    return [heading, *(_line(entry, found, unit) for entry in entries)]


def caption(entries: Sequence[Entry], found: Basis) -> str:
    """What the numbers of the table are."""
    over = "one seed" if _most_seeds(entries) <= 1 else f"mean ± standard deviation over {seeds_in_words(entries)}"
    return (
        f"Best mean client {found.metric.heading} under caps on the upload, {WAYS[found.accounting]}, "
        "and in the whole run; "
        f"the worst tenth of the clients at the end; bytes sent in whole runs, measured. {over[0].upper()}{over[1:]}."
    )


def notes(lines: Sequence[Sequence[str]], entries: Sequence[Entry]) -> list[str]:
    """What the marks in the table mean, for those that occur."""
    found = meanings(word for line in lines[1:] for word in line[1:])
    return found + [f"{UNFINISHED} not finished yet"] * any(entry.unfinished for entry in entries)


def cell(entry: Entry, found: Basis, cap_gib: float) -> Cell:
    """What the runs of an entry reached under a cap."""
    reached = scores(entry, found, cap_gib)
    short = any(_ended_short(entry, curve, cap_gib) for curve in entry.curves(found.accounting))
    return Cell(tuple(reached.values()), short, 0 < len(reached) < len(entry.runs), found.decimals)


def whole(entry: Entry, found: Basis) -> Cell:
    """The best scores that the runs of an entry ever had."""
    return replace(cell(entry, found, math.inf), short=False)


def scores(entry: Entry, found: Basis, cap_gib: float) -> dict[int, float]:
    """The best scores under a cap, as they are shown, by seed, of the runs that were evaluated under it."""
    best = {curve.seed: curve.best(cap_gib) for curve in entry.curves(found.accounting)}
    return {seed: found.metric.shown(score) for seed, score in best.items() if score is not None}


def headline(entries: Sequence[Entry], found: Basis, axis: Axis | None) -> list[str]:
    """The result in one to three plain sentences; `axis` is the upload that `found` counts, if runs have it."""
    cap = found.last_given
    cells = [cell(entry, found, cap.gib) if cap else whole(entry, found) for entry in entries]
    ranked = sorted(
        ((entry, score) for entry, score in zip(entries, cells, strict=True) if score.values),
        key=lambda pair: mean(pair[1].values),  # not as rounded for the table
        reverse=found.metric.higher_is_better,
    )
    if not ranked:
        return ["No round has been evaluated yet."]
    if len(ranked) == 1:
        sentences = [_alone(*ranked[0], cap, found)]
    else:
        names = [entry for entry, _ in ranked]
        sentences = [_first(ranked, cap, found), _doubt(names, found, cap.gib if cap else math.inf)]
        sentences += [_saving(names[0], _yardstick(names), axis, found)] if axis is not None else []
    return [sentence for sentence in (*sentences, _over(entries), _still_running(entries)) if sentence]


def _own_caps(entries: Sequence[Entry], accounting: Accounting) -> tuple[Cap, ...]:
    """A quarter and a half of the smallest upload of an entry, rounded down to two digits."""
    ends = [mean(row.upload(accounting) for row in entry.ends) / GIB * 1024 for entry in entries if entry.ends]
    caps = [_two_digits(share * min(ends)) for share in (0.25, 0.5)] if ends else []
    return tuple(Cap(mib / 1024, f"{mib:,g} MiB") for mib in caps if mib > 0)


def _two_digits(value: float) -> float:
    if value <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.floor(value / step) * step:.6g}")


def _line(entry: Entry, found: Basis, unit: str) -> list[str]:
    worst = [_last_worst(run.rows) for run in entry.runs]
    ends = entry.ends
    return [
        entry.label + (f" {UNFINISHED}" if entry.unfinished else ""),
        *(str(cell(entry, found, cap.gib)) for cap in found.caps),
        str(whole(entry, found)),
        str(Cell(tuple(found.metric.shown(score) for score in worst if is_known(score)), decimals=found.decimals)),
        _mean_size([row.upload_bytes for row in ends], unit),
        _mean_size([row.download_bytes for row in ends], unit),
    ]


def _last_worst(rows: Sequence[Row | Point]) -> float | None:
    return next((row.score_worst for row in reversed(rows) if row.score_worst is not None), None)


def _mean_size(totals: Sequence[int], unit: str) -> str:
    return f"{mean(totals) / UNITS[unit]:,.{2 if unit == 'GiB' else 1}f}" if totals else "–"


def _ended_short(entry: Entry, curve: Curve[Row | Point], cap_gib: float) -> bool:
    return curve.seed not in entry.unfinished and curve.ended_before(cap_gib)


def _alone(entry: Entry, score: Cell, cap: Cap | None, found: Basis) -> str:
    upload = mean(row.upload(found.accounting) for row in entry.ends) / GIB * 1024
    where = f"with {cap.label} of upload" if cap else f"with {size(upload)} of upload"
    return f"{entry.label} reaches {reaching(str(score), found.metric)} {where}, {WAYS[found.accounting]}."


def _first(ranked: Sequence[tuple[Entry, Cell]], cap: Cap | None, found: Basis) -> str:
    (best, top), *others = ranked
    where = f"With {cap.label} of upload, {WAYS[found.accounting]}," if cap else "Over the whole runs"
    named = [f"{entry.label} ({score.text(score.mean)})" for entry, score in others]
    rest = _joined(named) if len(ranked) <= FEW else f"{named[0]}; {named[-1]} is last of {len(ranked)}"
    return f"{where} {best.label} reaches {reaching(top.text(top.mean), found.metric)}, followed by {rest}."


def _doubt(ranked: Sequence[Entry], found: Basis, cap_gib: float) -> str:
    """A sentence on the entries over which the best's lead might be chance; empty if there are none."""
    best, *others = ranked
    top = scores(best, found, cap_gib)
    near = [entry.label for entry in others if _might_be_chance(top, scores(entry, found, cap_gib), found.metric)]
    if not near:
        return ""
    whom = _joined(near) if len(near) <= FEW else f"{len(near)} of the others"
    return f"The lead of {best.label} over {whom} is within the spread of the seeds."


def _might_be_chance(top: Mapping[int, float], other: Mapping[int, float], metric: Metric) -> bool:
    """Whether the paired differences over common seeds may have a mean of 0; without such seeds, the best's spread."""
    paired = paired_difference(top, other)
    if paired is not None and paired.seeds > 1:
        return paired.low <= 0 if metric.higher_is_better else paired.high >= 0
    spread = stdev(top.values()) if len(top) > 1 else 0.0
    return metric.merit(mean(top.values()) - mean(other.values())) < spread


def _over(entries: Sequence[Entry]) -> str:
    if _most_seeds(entries) > 1:
        return f"Means over {seeds_in_words(entries)}."
    return "One seed each: small differences say nothing yet." if len(entries) > 1 else "One seed."


def seeds_in_words(entries: Sequence[Entry]) -> str:
    """How many seeds of an entry count, those without an evaluation left out."""
    same = len({entry.evaluated for entry in entries}) == 1
    return ("" if same else "up to ") + counted(_most_seeds(entries), "seed")


def _most_seeds(entries: Sequence[Entry]) -> int:
    return max(entry.evaluated for entry in entries)


def _yardstick(ranked: Sequence[Entry]) -> Entry:
    """What a sparse winner is compared with: the best dense entry or, without one, the second."""
    dense = [entry for entry in ranked if _is_dense(entry)]
    return dense[0] if dense and dense[0] is not ranked[0] else ranked[1]


def _is_dense(entry: Entry) -> bool:
    """Whether the method trains and sends all weights."""
    kind = METHODS.get(str(entry.config.get("method", "")))
    return kind is not None and {field.name for field in fields(kind)} <= DENSE


def _saving(best: Entry, entry: Entry, axis: Axis, found: Basis) -> str:
    """How much less upload the best entry needs for the best score of another; empty if not much less."""
    line, other = against(best, axis), against(entry, axis)
    if not len(line.mean) or not len(other.mean):
        return ""
    metric = found.metric
    peak = int(other.mean.argmax() if metric.higher_is_better else other.mean.argmin())
    above = [
        place
        for place, score in zip(line.upload, line.mean, strict=True)
        if metric.merit(score) >= metric.merit(other.mean[peak])
    ]
    if not above or not above[0] * 1.5 <= other.upload[peak]:
        return ""
    times = _digits(other.upload[peak] / above[0], 2)
    less = "half as much" if times == "2" else f"{times} times less"
    score = Cell((float(other.mean[peak]),), decimals=found.decimals)
    said = f"{score} %" if metric.percent else f"{metric.name} of {score}"
    return (
        f"{best.label} needs {_digits(above[0], 3)} {axis.unit} for the {said} "
        f"that {entry.label} has after {_digits(other.upload[peak], 3)} {axis.unit}: {less}."
    )


def _digits(value: float, count: int) -> str:
    """A number with so many digits that count, and no exponent."""
    return f"{float(f'{value:.{count}g}'):,g}"


def _still_running(entries: Sequence[Entry]) -> str:
    names = [entry.label for entry in entries if entry.unfinished]
    if not names:
        return ""
    have = "has" if len(names) == 1 else "have"
    return f"{_joined(names)} {have} not finished: what is shown is what there is so far."


def size(mib: float) -> str:
    """An amount of data as a person would say it."""
    return f"{mib / 1024:.2f} GiB" if mib >= 2048 else f"{mib:.1f} MiB"


def _joined(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
