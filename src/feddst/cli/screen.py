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


def percent(share: float, decimals: int = 1) -> str:
    """A fraction as a percentage."""
    return f"{100 * share:.{decimals}f} %"


def counted(number: int, thing: str) -> str:
    """A number of things, in the plural where it belongs."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def duration(seconds: float) -> str:
    """Seconds as a person would say them."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


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
