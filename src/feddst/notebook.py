"""What Python and notebooks show: tables as text and HTML, curves, and outputs that are drawn again in place."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

Fact = tuple[str, str]
"""A word, and what is to be said about it."""

_CURVE = (280, 56)
_MARGIN = 4
_COLOUR = "#0072B2"


def in_notebook() -> bool:
    """Whether outputs can be drawn again here: in a Jupyter kernel, but not in IPython on a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def in_lines(title: str, facts: Sequence[Fact]) -> str:
    """A title and facts as plain text, a line each."""
    width = max((len(word) for word, _ in facts), default=0)
    return "\n".join([title, *(f"  {word:<{width}}  {text}" for word, text in facts)])


def aligned(rows: Sequence[Sequence[str]], *, numbers: bool = True, widths: Sequence[int] = ()) -> list[str]:
    """A table as lines of text; `numbers` aligns all but the first column to the right."""
    wide = widths or [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    cells = [
        [
            word.rjust(width) if numbers and i else word.ljust(width)
            for i, (word, width) in enumerate(zip(row, wide, strict=True))
        ]
        for row in rows
    ]
    return ["  ".join(words).rstrip() for words in cells]


def facts_html(title: str, facts: Sequence[Fact], below: str = "") -> str:
    """The same for a notebook; `below` is HTML."""
    rows = "".join(_row((escape(word), escape(text)), "td") for word, text in facts)
    return f"<div>{_bold(title)}<table>{rows}</table>{below}</div>"


def table_html(rows: Sequence[Sequence[str]], title: str = "", below: Sequence[str] = ()) -> str:
    """A table whose first row is the heading, with lines of text below it."""
    heading, *body = [[escape(cell) for cell in row] for row in rows]
    table = "".join([_row(heading, "th"), *(_row(row, "td") for row in body)])
    lines = "".join(f"<div>{escape(line)}</div>" for line in below)
    return f"<div>{_bold(title)}<table>{table}</table>{lines}</div>"


def curve_svg(points: Sequence[tuple[float, float]], label: str) -> str:
    """A line through the points, as large as a few words; empty for fewer than two. `label` is what it shows."""
    if len(points) < 2:
        return ""
    (width, height), (xs, ys) = _CURVE, zip(*points, strict=True)
    across = [_scaled(x, min(xs), max(xs), width) for x in xs]
    down = [height - _scaled(y, min(ys), max(ys), height) for y in ys]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    return (
        f'<svg width="{width}" height="{height}" role="img"><title>{escape(label)}</title>'
        f'<polyline points="{line}" fill="none" stroke="{_COLOUR}" stroke-width="1.8"/></svg>'
    )


@dataclass(frozen=True)
class Shown:
    """An output: HTML for a notebook, and text where there is only that."""

    html: str
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


class Output:
    """A place below the cell that is drawn again; to be used in a notebook only."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, shown: Shown) -> None:
        """Put this in the place of what was there."""
        if self._handle is None:
            from IPython.display import display

            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


def _bold(title: str) -> str:
    return f"<b>{escape(title)}</b>" if title else ""


def _row(cells: Sequence[str], tag: str) -> str:
    style = ' style="text-align: left"'
    return "<tr>" + "".join(f"<{tag}{style}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _scaled(value: float, low: float, high: float, size: int) -> float:
    share = (value - low) / (high - low) if high > low else 0.5
    return _MARGIN + share * (size - 2 * _MARGIN)
