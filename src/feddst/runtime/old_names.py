"""Names that options and methods had in earlier versions, for files and commands from then.

`renewed` translates them, and warns in one line. New files have only today's names.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from feddst.errors import OptionError
from feddst.methods import METHODS as TODAY
from feddst.methods import FedProx

log = logging.getLogger(__name__)

OPTIONS: Mapping[str, str] = {
    "averaged": "ema",
    "ballot.grown": "merge.grown",
    "ballot.keep": "merge.keep",
    "data.copies": "data.augmentation",
    "server.beta": "server.momentum",
}
"""Options by the names they had, with those they have now."""


@dataclass(frozen=True)
class Former:
    """What a former name of a method stands for: a method of today, with options that it had as its defaults."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)


_PROXIMAL = {"proximal.mu": 1.0}

METHODS: Mapping[str, Former] = {
    "randommask+fedprox": Former("randommask", _PROXIMAL),
    "randommask+fedadam": Former("randommask", {"server.optimizer": "adam"}),
    "feddst+fedprox": Former("feddst", _PROXIMAL),
    "feddst+fedadagrad": Former("feddst", {"server.optimizer": "adagrad"}),
    "feddst+fedadam": Former("feddst", {"server.optimizer": "adam"}),
    "feddst+fedyogi": Former("feddst", {"server.optimizer": "yogi"}),
    "sprout+fedadam": Former("sprout", {"server.optimizer": "adam"}),
}
"""Combined methods, by the names they had."""


_WHOLE = frozenset({"method", "proximal.mu", "lottery.threshold", "lg.shared_layers", "prunefl.every"})
"""Options of methods that exclude each other: what has them all is a file that names every option."""


def renewed(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Options by today's names; a warning names old ones and the place `where` they are written.

    Without `where` there is no warning: for files that this package has written itself, for its tables and figures.
    A method keeps its former name until `named_now`, since any given option overrides those that it stands for.
    """
    for name in values:
        if OPTIONS.get(name) in values:
            raise OptionError(f"{name} is called {OPTIONS[name]} now, and both are given")
    found = {OPTIONS.get(name, name): value for name, value in values.items()}
    if not any(old_in(values)):
        return found
    if where:
        say(where, old_in(values))
    if found.keys() >= _WHOLE and "server.optimizer" not in found and not _had_proximal(str(found["method"])):
        found["proximal.mu"] = 0.0  # files from before it was every method's had it for all, and few used it
    if "proximal.mu" in found and not all(_had_proximal(entry.partition(":")[0]) for entry in _entries(values)):
        raise OptionError("proximal.mu is an option of every method now: give it to those alone that are to have it")
    return found


def named_now(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options with a method of today, and those that its former name stands for unless they are given."""
    former = METHODS.get(values["method"]) if isinstance(values.get("method"), str) else None
    if former is None:
        return dict(values)
    found = {**former.options, **values, "method": former.method}
    if former.options == _PROXIMAL and not found["proximal.mu"]:
        found |= _PROXIMAL | {"proximal.gradient": "detached"}  # no pull either, but partial work is accepted
    if former.options.get("server.optimizer") == "adagrad":
        found.pop("adaptive.beta1", None)  # it was fixed at 0
    return found


def say(where: str, old: Iterable[str]) -> None:
    """Warn in one line of what `old_in` finds in a place."""
    if found := list(dict.fromkeys(old)):
        log.warning("%s has names of earlier versions: %s", where, ", ".join(found))


def old_in(values: Mapping[str, Any]) -> Iterator[str]:
    """Each old name and what it is now, in words."""
    entries = [entry.split(":") for entry in _entries(values)]
    own = (assignment.partition("=")[0] for _, *assignments in entries for assignment in assignments)
    yield from (f"{name} is {OPTIONS[name]} now" for name in (*values, *own) if name in OPTIONS)
    for name in (values.get("method"), *(method for method, *_ in entries)):
        if isinstance(name, str) and name in METHODS:
            options = {option: values.get(option, usual) for option, usual in METHODS[name].options.items()}
            yield f"{name} is {METHODS[name].method} with {' and '.join(f'{o} {v}' for o, v in options.items())} now"


def _entries(values: Mapping[str, Any]) -> list[str]:
    """The entries of a comparison, if these are its options."""
    entries = values.get("methods", ())
    return [str(entry) for entry in entries] if isinstance(entries, list | tuple) else []


def _had_proximal(method: str) -> bool:
    """Whether a method used the options of the proximal term."""
    if method in METHODS:
        return METHODS[method].options == _PROXIMAL
    return method in TODAY and issubclass(TODAY[method], FedProx)
