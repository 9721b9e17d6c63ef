"""A comparison as a table, the way the paper prints it: the best score of each method under each upload cap."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from feddst.core.metric import Metric
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
    """The best scores that an entry's runs reached under one cap, as they are shown, one for each seed.

    `short` says that a run ended although another round would have been under the cap, `partial` that seeds are
    missing. `decimals` is how many decimals are shown; None: four digits, for scores that are not in per cent.
    """

    values: tuple[float, ...]
    short: bool = False
    partial: bool = False
    decimals: int | None = 1

    @property
    def mean(self) -> float:
        """The mean over seeds, as the table shows it."""
        mean = statistics.mean(self.values)
        return float(f"{mean:.4g}") if self.decimals is None else round(mean, self.decimals)

    @property
    def spread(self) -> float:
        """The sample standard deviation over seeds; 0 for a single seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def __str__(self) -> str:
        marks = SHORT * self.short + PARTIAL * self.partial
        if not self.values:
            return NOTHING + marks
        spread = f" ± {self.text(self.spread, 2)}" if len(self.values) > 1 else ""
        return f"{self.text(self.mean)}{spread}{marks}"

    def text(self, value: float, digits: int = 4) -> str:
        """A number as the table shows it."""
        return f"{value:.{digits}g}" if self.decimals is None else f"{value:.{self.decimals}f}"


def cell_of(scores: Iterable[float], metric: Metric, **about: bool) -> Cell:
    """The cell with these scores."""
    return Cell(tuple(map(metric.shown, scores)), decimals=decimals_of(metric), **about)


def decimals_of(metric: Metric, of_percent: int = 1) -> int | None:
    """With how many decimals a metric is shown; None: with four digits."""
    return of_percent if metric.percent else None


def reaching(text: str, metric: Metric) -> str:
    """A score, as a table shows it, in a sentence that begins with `reaches`."""
    return f"{text} % mean client {metric.name}" if metric.percent else f"a mean client {metric.name} of {text}"


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
    return cell_of(reached, comparison.metric, short=short, partial=partial)


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
    """The score of clients' own models at the end of an entry's runs, where clients have such."""
    seen = [[row.score_personal for row in curve.rows] for curve in comparison.of(label)]
    tested = [[score for score in scores if score is not None] for scores in seen]
    return cell_of((scores[-1] for scores in tested if scores), comparison.metric)


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
    own = f"; {OWN}: at the end, on some of each client's own test examples" if has_own_models(comparison) else ""
    return f"Best mean client {comparison.metric.heading}{under}{over}{own}; bytes sent in whole runs, measured."


def has_own_models(comparison: Comparison) -> bool:
    """Whether some method here gives each client a model of its own."""
    return any(row.score_personal is not None for curve in comparison.curves for row in curve.rows)


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
    parts += [f"![mean client {comparison.metric.name} against upload]({picture})"] if picture else []
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
    cap, metric = columns(comparison)[-1], comparison.metric
    *others, last = comparison.config.methods
    way = WAYS[comparison.config.base.accounting]
    where = f"At {cap:g} GiB of upload, {way}," if comparison.config.caps else "Over the whole runs"
    main = cell(comparison, last, cap)
    if not main.values:
        return f"{where} {last} has not been evaluated yet."
    if len(others) > MANY:
        others = [
            max(
                others, key=lambda label: max(map(metric.merit, cell(comparison, label, cap).values), default=-math.inf)
            )
        ]
    against = _joined([_against(main, label, cell(comparison, label, cap), metric) for label in others])
    seeds = len(main.values)
    over = "one seed" if seeds == 1 else f"means over {seeds} seeds"
    score = reaching(main.text(main.mean), metric)
    return f"{where} {last} reaches {score}{against and ', ' + against} ({over})."


def _mean_mib(totals: list[int]) -> str:
    return f"{8 * statistics.mean(totals) / MIB:,.1f}" if totals else NOTHING


def _most(found: Cell, metric: Metric) -> float:
    return max(map(metric.merit, found.values), default=-math.inf)


def _against(main: Cell, label: str, other: Cell, metric: Metric) -> str:
    if not other.values:
        return f"with {label} not evaluated"
    difference = main.mean - other.mean
    spread = max(main.spread, other.spread)
    doubt = ", within the seeds' spread" if 0 < abs(difference) < spread else ""
    if abs(difference) < (0.05 if metric.percent else 5e-4 * abs(main.mean)) or not difference:
        return f"level with {label}"
    side = "above" if difference > 0 else "below"
    size = f"{abs(difference):.1f} points" if metric.percent else f"{abs(difference):.2g}"
    return f"{size} {side} {label}{judged(difference, metric)}{doubt}"


def judged(difference: float, metric: Metric) -> str:
    """Which way a difference is good, where that is not what everybody expects: where less is better."""
    if metric.higher_is_better or not difference:
        return ""
    return " (better)" if difference < 0 else " (worse)"


def _joined(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *rest = row
    return [first.ljust(widths[0]), *(word.rjust(width) for word, width in zip(rest, widths[1:], strict=True))]
