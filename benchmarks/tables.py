"""Tables of words, for screens and pages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """Rows of words, the heading first, under a title, with what they are.

    `columns` says what single columns mean. `numbers` says that most words are numbers.
    """

    title: str
    caption: str
    rows: Sequence[Sequence[str]]
    numbers: bool = True
    columns: Mapping[str, str] = field(default_factory=dict)


def paragraphs(tables: Iterable[Table]) -> list[str]:
    """The tables as Markdown: for each its title, its caption, its rows and what its columns mean."""
    parts: list[str] = []
    for table in tables:
        heading, *body = table.rows
        lines = [_line(heading), _line(["---"] * len(heading)), *map(_line, body)]
        meanings = [f"- *{name}*: {meaning}" for name, meaning in table.columns.items()]
        parts += [f"## {table.title}", table.caption, "\n".join(lines), *(["\n".join(meanings)] if meanings else [])]
    return parts


def _line(words: Sequence[str]) -> str:
    return "| " + " | ".join(words) + " |"
