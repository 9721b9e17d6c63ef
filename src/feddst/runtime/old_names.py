"""Names that options had in earlier versions, by which files and commands from then are read.

`renewed` reads what anybody has written, and says so in one line. What is written now has today's names alone.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from feddst.errors import OptionError

log = logging.getLogger(__name__)

OPTIONS: Mapping[str, str] = {
    "averaged": "ema",
    "ballot.grown": "merge.grown",
    "ballot.keep": "merge.keep",
    "data.copies": "data.augmentation",
    "server.beta": "server.momentum",
}
"""Options by the names they had, with those they have now."""


def renewed(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Options by today's names; if some have old ones, a line says so of the place `where` they are written.

    Without `where` nothing is said: for what this package has written itself and reads for its tables and figures.
    """
    for name in values:
        if OPTIONS.get(name) in values:
            raise OptionError(f"{name} is called {OPTIONS[name]} now, and both are given")
    if where:
        say(where, values)
    return {OPTIONS.get(name, name): value for name, value in values.items()}


def say(where: str, names: Iterable[str]) -> None:
    """One line on the old ones among the names of options in a place."""
    if found := [f"{name} is {OPTIONS[name]} now" for name in names if name in OPTIONS]:
        log.warning("%s has names of earlier versions: %s", where, ", ".join(dict.fromkeys(found)))
