"""What surrounds every command: its options are read, and errors and warnings become lines and exit codes."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from feddst import early_interrupt
from feddst.cli.arguments import parse
from feddst.cli.command import Command
from feddst.cli.help import help_text
from feddst.cli.screen import WarningLines, complain
from feddst.early_interrupt import INTERRUPTED
from feddst.errors import FeddstError

BAD_INPUT = 2


def guarded(action: Callable[[], int]) -> int:
    """Do something; returns its exit code. What goes wrong is one line and an exit code, not a traceback."""
    early_interrupt.unwatch()
    try:
        with _warnings_shown():
            return action()
    except FeddstError as error:
        complain(error)
        return BAD_INPUT
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it; Python would complain once more while shutting down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        complain(error)
        return BAD_INPUT


def carry_out(program: str, command: Command, words: Sequence[str]) -> int:
    """Carry out a command of a program with these words after its name, or show its help if they ask for it."""
    options = command.options()
    given = parse(words, options, words=command.words, unneeded=command.unneeded)
    if given.help:
        print(help_text(f"{program} {command.usage}", command.summary, options))
        return 0
    return command.action(given)


@contextmanager
def _warnings_shown() -> Iterator[None]:
    logger, handler = logging.getLogger("feddst"), WarningLines(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
