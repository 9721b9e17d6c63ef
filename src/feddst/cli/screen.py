"""What the user sees: results on standard output, everything else on standard error."""

import logging
import shutil
import sys
import textwrap
from collections.abc import Sequence
from functools import cache

from feddst.notebook import aligned


def say(line: str) -> None:
    """One line that is not a result."""
    print(line, file=sys.stderr, flush=True)


def complain(message: object) -> None:
    """One line on what went wrong."""
    say("feddst: " + " ".join(str(message).split()))


class WarningLines(logging.Handler):
    """Warnings of the package, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(f"warning: {record.getMessage()}")


def page_width() -> int:
    """Columns for text that is wrapped: those of the terminal, within reason."""
    return min(max(shutil.get_terminal_size().columns, 60), 100)


def show_table(rows: Sequence[Sequence[str]], *, numbers: bool = False, wrap: bool = False) -> None:
    """A table on standard output, its heading first.

    `numbers` aligns all but the first column to the right; `wrap` breaks the lines of long cells, so that the table
    is no wider than a page.
    """
    if sys.stdout.isatty() and _show_rich(rows, numbers, wrap):
        return
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    if wrap:
        widths = _narrowed(rows, widths)
        rows = [line for row in rows for line in _lines(row, widths)]
    for line in aligned(rows, numbers=numbers, widths=widths):
        print(line)


def _narrowed(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[int]:
    """Widths that fit on a page with as few lines as can be; the first column stays, and no word is broken."""
    found = list(widths)
    least = [max((len(word) for row in rows for word in row[i].split()), default=0) for i in range(len(found))]
    while sum(found) + 2 * (len(found) - 1) > page_width():
        narrower = [[*found[:i], found[i] - 1, *found[i + 1 :]] for i in range(1, len(found)) if found[i] > least[i]]
        if not narrower:
            break
        found = min(narrower, key=lambda some: (sum(_height(row, some) for row in rows), max(some)))
    return found


def _height(row: Sequence[str], widths: Sequence[int]) -> int:
    return max(len(_wrapped(cell, width)) for cell, width in zip(row, widths, strict=True))


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """A row as lines of cells that are no wider than these widths."""
    cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    return [[cell[i] if i < len(cell) else "" for cell in cells] for i in range(max(map(len, cells)))]


@cache
def _wrapped(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width, break_on_hyphens=False) or [""]


def _show_rich(rows: Sequence[Sequence[str]], numbers: bool, wrap: bool) -> bool:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    heading, *body = rows
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, word in enumerate(heading):
        wraps = (wrap and i > 0) or (i == len(heading) - 1 and not numbers)
        table.add_column(Text(word), justify="right" if numbers and i else "left", no_wrap=not wraps)
    for row in body:
        table.add_row(*map(Text, row))
    Console().print(table)
    return True
