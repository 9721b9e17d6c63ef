"""What the user sees: results on standard output, everything else on standard error."""

import logging
import sys
from collections.abc import Sequence


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


def show_table(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> None:
    """A table on standard output, its heading first; `numbers` aligns all but the first column to the right."""
    if sys.stdout.isatty() and _show_rich(rows, numbers):
        return
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        words = [
            word.rjust(width) if numbers and i else word.ljust(width)
            for i, (word, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(words).rstrip())


def _show_rich(rows: Sequence[Sequence[str]], numbers: bool) -> bool:
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
        wraps = i == len(heading) - 1 and not numbers
        table.add_column(Text(word), justify="right" if numbers and i else "left", no_wrap=not wraps)
    for row in body:
        table.add_row(*map(Text, row))
    Console().print(table)
    return True
