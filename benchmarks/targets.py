"""What something was designed for, and whether it is so."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.tables import Table

_WORDS = {True: "met", False: "not met", None: "not measured"}


@dataclass(frozen=True)
class Verdict:
    """Whether a job meets a target, None if that was not measured, and by which numbers."""

    job: str
    target: str
    met: bool | None
    found: str


def target_table(caption: str, verdicts: Iterable[Verdict]) -> Table:
    """All verdicts, a line each."""
    rows = [(verdict.job, verdict.target, _WORDS[verdict.met], verdict.found) for verdict in verdicts]
    return Table("Targets", caption, [("job", "target", "", "found"), *rows], numbers=False)
