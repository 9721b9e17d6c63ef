"""The live view as lines of text, for any width: what does not fit is left out, the least important first."""

import math
import textwrap
from dataclasses import dataclass
from typing import Literal

from feddst.cli.run_progress import RunProgress
from feddst.cli.sparkline import sparkline
from feddst.runtime.metrics import MIB
from feddst.runtime.wording import duration, percent, size

LABEL = 10
"""Columns for what stands before the numbers of a line."""
WIDEST = 100
"""Beyond this a line is harder to read, not easier."""
CURVE, SHORTEST = 40, 4
"""The most and the fewest columns for the curve."""


@dataclass(frozen=True)
class Line:
    """A line of the view, and what kind it is."""

    text: str
    kind: Literal["title", "numbers", "notice"] = "numbers"


def frame(progress: RunProgress, width: int, *, ascii_only: bool = False) -> list[Line]:
    """What is known of a run, in lines of at most `width` columns."""
    width = min(width, WIDEST)
    numbers = (
        _rounds(progress, width, "=-" if ascii_only else "━─"),
        _score(progress, width, curve=not ascii_only),
        _labelled("sent", width, *_sent(progress)),
        _labelled("weights", width, *_weights(progress)),
        _labelled("time", width, *_time(progress)),
    )
    return [
        *([Line(progress.title[:width], "title")] if progress.title else []),
        *(Line(text[:width]) for text in numbers),
        *(Line(text, "notice") for text in textwrap.wrap(progress.notice, width)),
    ]


def _rounds(progress: RunProgress, width: int, strokes: str) -> str:
    number = progress.last.round if progress.last is not None else 0
    limit = progress.config.rounds
    start = f"{'rounds':{LABEL}}{number:,} of {limit:,}" if limit else f"{'rounds':{LABEL}}{number:,}"
    end = f"{100 * progress.done():3.0f} %"
    room = width - len(start) - len(end) - 4
    done = round(progress.done() * room)
    return f"{start}  {strokes[0] * done}{strokes[1] * (room - done)}  {end}" if room > 0 else f"{start}  {end}"


def _score(progress: RunProgress, width: int, *, curve: bool) -> str:
    best, metric = progress.best, progress.metric
    if best is None:
        return _labelled(metric.name, width, "not evaluated yet")
    scores = [one.score for one in progress.scores]
    short = f"{metric.text(scores[-1])}, best {metric.text(best.score)}"
    line = _labelled(metric.name, width - 2 * SHORTEST, f"{short} in round {best.round:,}", short)
    room = min(CURVE, width - len(line) - 2)
    return (
        f"{line}  {sparkline([one for one in scores if math.isfinite(one)], room)}"
        if curve and room >= SHORTEST
        else line
    )


def _sent(progress: RunProgress) -> tuple[str, ...]:
    row = progress.last
    up, down = (8 * row.upload_bytes, 8 * row.download_bytes) if row is not None else (0, 0)
    return f"{size(up)} up, {size(down)} down", f"{up / MIB:,.0f} MiB up, {down / MIB:,.0f} down"


def _weights(progress: RunProgress) -> tuple[str, ...]:
    active, moved = f"{percent(progress.density)} active", progress.moved
    of_all = active if progress.density_all is None else f"{active} ({percent(progress.density_all)} of all)"
    if moved is None:
        return of_all, active
    return (
        f"{of_all}, {moved.entered:,} in and {moved.left:,} out in round {moved.round:,}",
        f"{active}, {moved.entered:,} in and {moved.left:,} out in round {moved.round:,}",
        f"{percent(progress.density)}, {moved.entered:,} in, {moved.left:,} out",
        active,
    )


def _time(progress: RunProgress) -> tuple[str, ...]:
    left = progress.seconds_left()
    if left is None:
        return ("the first round is under way",) if progress.last is None else ("the next round is under way",)
    pace = progress.pace.seconds_a_round
    seconds = f"{pace:.1f} s" if pace >= 1 else f"{pace:.2f} s"
    rest = f"{duration(left)} left"
    return f"{seconds} a round, about {rest}", f"{seconds}/round, {rest}", rest


def _labelled(label: str, width: int, *wordings: str) -> str:
    """The label and the first wording that fits, else the last."""
    lines = [f"{label:{LABEL - 1}} {words}" for words in wordings]
    return next((line for line in lines if len(line) <= width), lines[-1])
