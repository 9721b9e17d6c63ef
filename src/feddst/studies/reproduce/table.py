"""A record as the paper's table, with the paper's own values beside it, and the paired differences."""

from collections.abc import Sequence
from dataclasses import replace

from feddst.core.metric import Metric
from feddst.runtime.presets import STILL
from feddst.runtime.wording import NOTHING, WAYS, counted, duration
from feddst.studies.reproduce.paired import Difference, paired_difference, pairs
from feddst.studies.reproduce.paper import PAPER, Reported
from feddst.studies.reproduce.record import STUDY, Maker, Record, RecordedRow
from feddst.studies.tables import Cell, decimals_of, escaped, meanings, pipes

TABLE = "table.md"
_READINGS = {"paper": "the paper's text", "published": "its published code"}


def settings(record: Record) -> str:
    """Where the settings come from."""
    if record.target == STUDY:
        return record.title or f"study {record.reading}"
    return _READINGS.get(record.reading, record.reading)


def cell(record: Record, row: RecordedRow, cap_gib: float) -> Cell:
    """What the runs of a row reached under one cap, with two decimals as in the paper."""
    values = tuple(row.best(cap_gib).values())
    short = any(run.settled(cap_gib) and run.ended_before(cap_gib) for run in row.runs)
    return Cell(values, short, 0 < len(values) < record.seeds, decimals_of(record.metric, 2))


def reported(record: Record, row: RecordedRow, cap_gib: float) -> Reported | None:
    """What the paper says there; it has no numbers for its sweeps."""
    cells = PAPER.get(record.target, {}).get(row.name.removesuffix(STILL))
    return None if cells is None else cells[record.caps.index(cap_gib)]


def table(record: Record) -> list[list[str]]:
    """Rows of words, the heading first: for each cap what was found, what the paper says, and how far that is."""
    beside = record.target in PAPER
    heading = [_heading(record)]
    for cap in record.caps:
        heading += [f"{cap:g} GiB", *(["paper", "Δ"] if beside else [])]
    lines = [heading]
    for row in record.rows:
        line = [row.title]
        for cap in record.caps:
            found, said = cell(record, row, cap), reported(record, row, cap)
            line.append(str(found))
            if said is not None:
                line += [f"{said.mean:.2f} ± {said.spread:.2f}", _distance(found, said)]
        lines.append(line)
    return lines


def short_table(record: Record) -> list[list[str]]:
    """The table for a screen: what was found, and in brackets how far from the paper that is."""
    lines = [[_heading(record), *(f"{cap:g} GiB" for cap in record.caps)]]
    for row in record.rows:
        line = [row.title]
        for cap in record.caps:
            found, said = cell(record, row, cap), reported(record, row, cap)
            line.append(str(found) + (f" ({_distance(found, said)})" if said is not None and found.values else ""))
        lines.append(line)
    return lines


def differences(record: Record) -> list[list[str]]:
    """The paired differences as rows of words, the heading first; pairs without a seed in common are left out."""
    lines = [["difference", *(f"{cap:g} GiB" for cap in record.caps)]]
    for first, second in pairs(record):
        found = [difference(record, first, second, cap) for cap in record.caps]
        if any(each is not None for each in found):
            words = (NOTHING if each is None else str(each) for each in found)
            lines.append([f"{_title(record, first)} − {_title(record, second)}", *words])
    return lines


def difference(record: Record, first: str, second: str, cap_gib: float) -> Difference | None:
    """One row less another under a cap; None if they have no seed in common there."""
    one, other = record.row(first), record.row(second)
    if one is None or other is None:
        return None
    found = paired_difference(one.best(cap_gib), other.best(cap_gib))
    short = any(cell(record, row, cap_gib).short for row in (one, other))
    return found and replace(found, short=short, decimals=decimals_of(record.metric, 2))


def sentences(record: Record) -> list[str]:
    """The differences at the largest cap, one line for each pair with a common seed."""
    cap = record.caps[-1]
    found = {pair: difference(record, *pair, cap) for pair in pairs(record)}
    return [
        f"{_title(record, first)} − {_title(record, second)} at {cap:g} GiB: {value}"
        for (first, second), value in found.items()
        if value is not None
    ]


def caption(record: Record) -> str:
    """What the numbers of the table are."""
    beside = ""
    if record.target in PAPER:
        beside = (
            f"; beside it Table {record.target.removeprefix('table')} of the paper (10 runs), "
            "and Δ, the difference in standard deviations of the paper"
        )
    several = f", mean ± standard deviation over {record.seeds} seeds" if record.seeds > 1 else ", one seed"
    return (
        f"{record.data}; {settings(record)}. Best mean client {record.metric.heading} under caps on the upload, "
        f"{WAYS[record.accounting]}{several}{beside}."
    )


def partial(record: Record) -> str:
    """One sentence on what is missing, or nothing."""
    total = len(record.rows) * record.seeds
    return f"Partial: {record.missing} of {counted(total, 'run')} not finished." if record.missing else ""


def notes(record: Record) -> list[str]:
    """What the marks in the table mean, for those that occur."""
    return meanings(str(cell(record, row, cap)) for row in record.rows for cap in record.caps)


def markdown(record: Record, pictures: Sequence[str] = ()) -> str:
    """The whole page."""
    made = "; ".join(map(_maker, record.made))
    compared = differences(record)
    parts = [
        partial(record),
        caption(record),
        pipes(table(record)),
        *escaped(notes(record)),
        *([_compared(record.metric), pipes(compared)] if len(compared) > 1 else []),
        *(f"![{record.metric.name}]({picture})" for picture in pictures),
        f"`{record.command}`" if record.command else "",
        f"Made with {made}." if made else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _compared(metric: Metric) -> str:
    """What the differences are; where less is better, which of them are good."""
    points = ", in points" if metric.percent else ""
    good = "" if metric.higher_is_better else ", those below 0 in favour of the first"
    return f"Differences on the same seeds{points}{good}, with 95 % bootstrap intervals over seeds:"


def _heading(record: Record) -> str:
    return "FedDST with" if record.symbol else "method"


def _distance(found: Cell, said: Reported) -> str:
    return f"{said.distance(found.mean):+.1f}σ".replace("-", "−") if found.values else NOTHING


def _title(record: Record, name: str) -> str:
    """A row's title as part of a difference, with no spaces around a plus, which would read as a sum."""
    title = next((row.title for row in record.rows if row.name == name), name)
    return title.removesuffix(" (μ = 1)").replace(" + ", "+")


def _maker(maker: Maker) -> str:
    time = f" in {duration(maker.seconds)}" if maker.seconds else ""
    return f"{maker.device}, PyTorch {maker.torch}, at {maker.commit}{time}"
