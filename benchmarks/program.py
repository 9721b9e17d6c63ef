"""The benches as programs: `python -m benchmarks.cpu`, and so on, in the repository's root."""

import sys
from collections.abc import Sequence

from feddst.cli.command import Command
from feddst.cli.program import carry_out, guarded


def program(name: str) -> str:
    """How a bench is called."""
    return f"python -m benchmarks.{name}"


def main(name: str, command: Command, words: Sequence[str] | None = None) -> int:
    """Run a bench with these words, or those of the command line; returns the exit code."""
    return guarded(lambda: carry_out(program(name), command, sys.argv[1:] if words is None else words))
