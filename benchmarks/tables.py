"""Tables of words, for screens and pages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of words, the heading first, under a title, with what they mean; `numbers` if most of them are such."""

    title: str
    caption: str
    rows: Sequence[Sequence[str]]
    numbers: bool = True


def paragraphs(tables: Iterable[Table]) -> list[str]:
    """The tables as Markdown: for each its title, its caption and its rows."""
    parts: list[str] = []
    for table in tables:
        heading, *body = table.rows
        lines = [_line(heading), _line(["---"] * len(heading)), *map(_line, body)]
        parts += [f"## {table.title}", table.caption, "\n".join(lines)]
    return parts


def _line(words: Sequence[str]) -> str:
    return "| " + " | ".join(words) + " |"
