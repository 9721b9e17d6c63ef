"""A comparison as a table, the way the paper prints it: best accuracy of each method under each upload cap."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from feddst.runtime.metrics import GIB, MIB
from feddst.runtime.wording import NOTHING, WAYS
from feddst.studies.comparison import Comparison

SHORT, PARTIAL = "*", "†"
MANY = 6
"""More entries than this are too many for one sentence."""
OWN = "own models"
"""The column for clients' own models, if a method makes such."""


@dataclass(frozen=True)
class Cell:
    """The best accuracies, in percent, that an entry's runs reached under one cap, one for each seed.

    `short` says that a run ended although another round would have been under the cap, `partial` that seeds are
    missing. `decimals` is how many decimals are shown.
    """

    values: tuple[float, ...]
    short: bool = False
    partial: bool = False
    decimals: int = 1

    @property
    def mean(self) -> float:
        """The mean over seeds, as the table shows it."""
        return round(statistics.mean(self.values), self.decimals)

    @property
    def spread(self) -> float:
        """The sample standard deviation over seeds; 0 for a single seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def __str__(self) -> str:
        marks = SHORT * self.short + PARTIAL * self.partial
        if not self.values:
            return NOTHING + marks
        spread = f" ± {self.spread:.{self.decimals}f}" if len(self.values) > 1 else ""
        return f"{self.mean:.{self.decimals}f}{spread}{marks}"


def columns(comparison: Comparison) -> tuple[float, ...]:
    """The caps of the table, rising; without any, the largest upload of all runs stands for no cap."""
    if comparison.config.caps:
        return tuple(sorted(set(comparison.config.caps)))
    return (max((curve.uploaded / GIB for curve in comparison.curves), default=0.0),)


def cell(comparison: Comparison, label: str, cap_gib: float) -> Cell:
    """What the runs of one entry reached under one cap."""
    curves = comparison.of(label)
    reached = [best for curve in curves if (best := curve.best(cap_gib)) is not None]
    short = bool(comparison.config.caps) and any(curve.ended_before(cap_gib) for curve in curves)
    partial = bool(reached) and len(reached) < len(comparison.config.seeds)
    return Cell(tuple(100 * best for best in reached), short, partial)


def table(comparison: Comparison) -> list[list[str]]:
    """The table as text, a heading first: an entry a row, a cap a column, then what was sent in all."""
    caps = columns(comparison)
    heading = [f"{cap:g} GiB" for cap in caps] if comparison.config.caps else ["whole run"]
    own = has_own_models(comparison)
    rows = [
        [
            label,
            *(str(cell(comparison, label, cap)) for cap in caps),
            *([str(personal(comparison, label))] if own else []),
            *traffic(comparison, label),
        ]
        for label in comparison.config.methods
    ]
    return [["method", *heading, *([OWN] if own else []), "MiB up", "MiB down"], *rows]


def personal(comparison: Comparison, label: str) -> Cell:
    """The accuracy of clients' own models at the end of an entry's runs, where clients have such."""
    seen = [[row.accuracy_personal for row in curve.rows] for curve in comparison.of(label)]
    tested = [[score for score in scores if score is not None] for scores in seen]
    return Cell(tuple(100 * scores[-1] for scores in tested if scores))


def traffic(comparison: Comparison, label: str) -> list[str]:
    """What an entry's runs sent up and down in all, measured, as a mean over seeds."""
    ends = [curve.rows[-1] for curve in comparison.of(label) if curve.rows]
    return [_mean_mib([row.upload_bytes for row in ends]), _mean_mib([row.download_bytes for row in ends])]


def caption(comparison: Comparison) -> str:
    """What the numbers of the table are."""
    several = len(comparison.config.seeds) > 1
    over = f", mean ± standard deviation over {len(comparison.config.seeds)} seeds" if several else ", one seed"
    way = WAYS[comparison.config.base.accounting]
    under = f" under caps on the upload, {way}" if comparison.config.caps else ""
    own = f"; {OWN}: at the end, on some of each client's own test images" if has_own_models(comparison) else ""
    return f"Best mean client accuracy [%]{under}{over}{own}; bytes sent in whole runs, measured."


def has_own_models(comparison: Comparison) -> bool:
    """Whether some method here gives each client a model of its own."""
    return any(row.accuracy_personal is not None for curve in comparison.curves for row in curve.rows)


def notes(comparison: Comparison) -> list[str]:
    """What the marks in the table mean, for those that occur."""
    return meanings(word for row in table(comparison)[1:] for word in row[1:-2])


def meanings(words: Iterable[str]) -> list[str]:
    """What the marks in these cells mean, for those that occur."""
    text = "".join(words)
    known = {
        SHORT: "ended before the cap for another reason: more rounds would have been allowed",
        PARTIAL: "not all seeds have an evaluation under this cap",
    }
    return [f"{mark} {meaning}" for mark, meaning in known.items() if mark in text]


def markdown(comparison: Comparison, picture: str = "") -> str:
    """The table with its caption, its notes and the sentence on what it shows, as Markdown."""
    parts = [caption(comparison), pipes(table(comparison)), *escaped(notes(comparison)), headline(comparison)]
    parts += [f"![mean client accuracy against upload]({picture})"] if picture else []
    return "\n\n".join(parts) + "\n"


def pipes(rows: Sequence[Sequence[str]]) -> str:
    """Rows of words, the heading first, as a Markdown table; all but the first column are aligned to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(_padded(row, widths)) + " |" for row in rows]
    rule = "|" + "|".join("-" * (width + 1) + (":" if i else "-") for i, width in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def escaped(notes: Iterable[str]) -> list[str]:
    """Notes as Markdown: a leading star would begin a list."""
    return [note.replace(SHORT, "\\" + SHORT) for note in notes]


def headline(comparison: Comparison) -> str:
    """One sentence on the table's last cap: the last entry against the others, or against the best of many."""
    cap = columns(comparison)[-1]
    *others, last = comparison.config.methods
    way = WAYS[comparison.config.base.accounting]
    where = f"At {cap:g} GiB of upload, {way}," if comparison.config.caps else "Over the whole runs"
    main = cell(comparison, last, cap)
    if not main.values:
        return f"{where} {last} has not been evaluated yet."
    if len(others) > MANY:
        others = [max(others, key=lambda label: max(cell(comparison, label, cap).values, default=0.0))]
    against = _joined([_against(main, label, cell(comparison, label, cap)) for label in others])
    seeds = len(main.values)
    over = "one seed" if seeds == 1 else f"means over {seeds} seeds"
    return f"{where} {last} reaches {main.mean:.1f} % mean client accuracy{against and ', ' + against} ({over})."


def _mean_mib(totals: list[int]) -> str:
    return f"{8 * statistics.mean(totals) / MIB:,.1f}" if totals else NOTHING


def _against(main: Cell, label: str, other: Cell) -> str:
    if not other.values:
        return f"with {label} not evaluated"
    difference = main.mean - other.mean
    spread = max(main.spread, other.spread)
    doubt = ", within the seeds' spread" if 0 < abs(difference) < spread else ""
    if abs(difference) < 0.05:
        return f"level with {label}"
    side = "above" if difference > 0 else "below"
    return f"{abs(difference):.1f} points {side} {label}{doubt}"


def _joined(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *rest = row
    return [first.ljust(widths[0]), *(word.rjust(width) for word, width in zip(rest, widths[1:], strict=True))]
