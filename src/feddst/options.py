"""One declaration per option: frozen dataclasses whose fields say what they mean and what they allow.

Command-line flags, TOML files, `--help`, the docs and the checks all read these declarations. Groups nest:
the field `alpha` of the group `readjust` is the option `readjust.alpha`.
"""

import contextlib
import dataclasses
import difflib
import math
import numbers
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from feddst.errors import OptionError

T = TypeVar("T")


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    among: Iterable[str] = (),
) -> Any:
    """Declare a dataclass field as an option. Choices come from a `Literal` annotation, or from `among`.

    `among` is read whenever a value is checked, since a registry may grow.
    """
    bounds = Bounds(at_least, above, at_most, below)
    return dataclasses.field(default=default, metadata={"help": help, "bounds": bounds, "among": among})


@dataclass(frozen=True)
class Bounds:
    """The interval a number must lie in; `None` leaves a side open."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def admit(self, value: float) -> bool:
        return (
            (isinstance(value, int) or math.isfinite(value))
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.at_least is None and self.above is None:
            if self.at_most is None and self.below is None:
                return "finite"
            return f"at most {_short(self.at_most)}" if self.at_most is not None else f"below {_short(self.below)}"
        if self.at_most is None and self.below is None:
            return f"at least {_short(self.at_least)}" if self.at_least is not None else f"above {_short(self.above)}"
        low = f"[{_short(self.at_least)}" if self.at_least is not None else f"({_short(self.above)}"
        high = f"{_short(self.at_most)}]" if self.at_most is not None else f"{_short(self.below)})"
        return f"in {low}, {high}"


@dataclass(frozen=True)
class Option:
    """One leaf of a config dataclass: its dotted name, type, default, help and what it allows."""

    name: str
    type: type
    repeated: bool
    choices: tuple[Any, ...]
    default: Any
    help: str
    bounds: Bounds

    def parse(self, text: str) -> Any:
        """The value that a command-line word stands for."""
        if self.repeated:
            return self.check(tuple(self._parse_one(word) for word in text.split(",") if word))
        return self.check(self._parse_one(text))

    def check(self, value: Any) -> Any:
        """`value` if this option allows it, with integers widened to floats and lists to tuples."""
        if self.repeated:
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise OptionError(f"{self.name} must be a list, got {value!r}")
            return tuple(self._check_one(item) for item in value)
        return self._check_one(value)

    def allowed(self) -> str:
        """What this option takes, for help and messages."""
        if self.choices:
            return f"a comma-separated list, each {one_of(self.choices)}" if self.repeated else one_of(self.choices)
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        kind = words[self.type]
        plain = self.bounds == Bounds()
        kind = kind if plain or self.type is str else f"{kind} {self.bounds}"
        return f"a comma-separated list, each {kind}" if self.repeated else kind

    def _parse_one(self, text: str) -> Any:
        if self.type is bool:
            truth = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
            if text.lower() not in truth:
                raise self._refuse(text)
            return truth[text.lower()]
        try:
            return self.type(text)
        except ValueError:
            raise self._refuse(text) from None

    def _check_one(self, value: Any) -> Any:
        value = self._native(value)
        if type(value) is not self.type:
            raise self._refuse(value)
        if self.choices and value not in self.choices:
            raise OptionError(f"{self.name} must be {one_of(self.choices)}, got {value!r}{hint(value, self.choices)}")
        if isinstance(value, int | float) and not self.bounds.admit(value):
            raise OptionError(f"{self.name} must be {self.bounds}, got {value}")
        return value

    def _native(self, value: Any) -> Any:
        """Other libraries' numbers, and whole numbers for float options, as Python's own."""
        if isinstance(value, bool):
            return value
        if self.type is int and isinstance(value, numbers.Integral):
            return int(value)
        if self.type is float and isinstance(value, numbers.Real):
            with contextlib.suppress(OverflowError):
                return float(value)
        return value

    def _refuse(self, value: Any) -> OptionError:
        return OptionError(f"{self.name} must be {self.allowed()}, got {value!r}")


@dataclass(frozen=True)
class OpenGroups:
    """A config field for groups that are declared elsewhere; each has a name of its own, as a field would.

    A subclass has its own `kinds`, the dataclass of each group by name. `changed` are those not at their defaults.
    """

    kinds: ClassVar[dict[str, type]]
    changed: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.changed).get(name, self.kinds[name]())

    def replaced(self, name: str, group: Any) -> Self:
        """A copy with another value of one group."""
        values = {**dict(self.changed), name: group}
        return type(self)(tuple((name, value) for name, value in sorted(values.items()) if value != self.kinds[name]()))


def options_of(config: type, prefix: str = "") -> list[Option]:
    """Every option under a config dataclass, in the order it is declared."""
    found: list[Option] = []
    hints = get_type_hints(config)
    for field in dataclasses.fields(config):
        name, annotation = prefix + field.name, hints[field.name]
        if isinstance(annotation, type) and issubclass(annotation, OpenGroups):
            for group, kind in annotation.kinds.items():
                found += options_of(kind, f"{prefix}{group}.")
        elif dataclasses.is_dataclass(annotation):
            assert isinstance(annotation, type)
            found += options_of(annotation, name + ".")
        elif "help" in field.metadata:
            found.append(_leaf(name, annotation, field))
    return found


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """The value of every option of a config, by dotted name."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, OpenGroups):
            for group in value.kinds:
                values |= flatten(value[group], f"{prefix}{group}.")
        elif dataclasses.is_dataclass(value):
            values |= flatten(value, prefix + field.name + ".")
        elif "help" in field.metadata:
            values[prefix + field.name] = value
    return values


def dotted(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one: {"data": {"clients": 9}} becomes {"data.clients": 9}."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            values |= dotted(value, f"{prefix}{name}.")
        else:
            values[prefix + name] = value
    return values


def updated(config: T, values: Mapping[str, Any]) -> T:
    """A copy of `config` with options replaced by dotted name; every name and value is checked."""
    known = {opt.name: opt for opt in options_of(type(config))}
    for name in values:
        if name not in known:
            raise OptionError(f"unknown option {name!r}{option_hint(name, known)}")
    changed: T = _replace(config, {name: known[name].check(value) for name, value in values.items()})
    return changed


def as_words(values: Mapping[str, Any]) -> list[str]:
    """Options as they are typed: `--name value`, or `--name=true` for one that could stand alone."""
    words: list[str] = []
    for name, value in values.items():
        if isinstance(value, bool):
            words.append(f"--{name}={str(value).lower()}")
        else:
            words += [f"--{name}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return words


def validate(config: Any) -> None:
    """Raise `OptionError` at the first option that holds a value it does not allow."""
    values = flatten(config)
    for opt in options_of(type(config)):
        opt.check(values[opt.name])


def check_list(name: str, values: Iterable[Any]) -> None:
    """Raise `OptionError` if a list has nothing in it, or something twice."""
    seen: list[Any] = []
    for value in values:
        if value in seen:
            raise OptionError(f"{name} names {value} twice")
        seen.append(value)
    if not seen:
        raise OptionError(f"{name} must not be empty")


def hint(word: Any, known: Iterable[Any]) -> str:
    """`; did you mean 'x'?` for the nearest known word, or nothing."""
    near = difflib.get_close_matches(str(word), [str(k) for k in known], n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def option_hint(name: str, known: Iterable[str], mark: str = "'{}'") -> str:
    """The same for options, also known by the part after the last dot: `level` is `sparsity.level`.

    `mark` is how a name is written.
    """
    called: dict[str, list[str]] = {}
    for full in known:
        for word in {full, full.rpartition(".")[2]}:
            called.setdefault(word, []).append(full)
    near = difflib.get_close_matches(name, called, n=1, cutoff=0.5)
    return f"; did you mean {' or '.join(map(mark.format, called[near[0]]))}?" if near else ""


def one_of(choices: Iterable[Any]) -> str:
    """The choices as a user would read them."""
    return "one of " + ", ".join(str(choice) for choice in choices)


def _short(number: float | None) -> str:
    """A number for a message: a whole one with all its digits."""
    return str(number) if isinstance(number, int) else f"{number:g}"


def _leaf(name: str, annotation: Any, field: "dataclasses.Field[Any]") -> Option:
    repeated = get_origin(annotation) is tuple
    inner = get_args(annotation)[0] if repeated else annotation
    if get_origin(inner) in (Union, types.UnionType):
        raise TypeError(f"option {name}: use an empty value instead of a union")
    choices = get_args(inner) if get_origin(inner) is Literal else tuple(field.metadata["among"])
    kind = type(choices[0]) if choices else inner
    assert field.default is not MISSING, f"option {name} needs a default"
    return Option(name, kind, repeated, choices, field.default, field.metadata["help"], field.metadata["bounds"])


def _replace(config: Any, values: Mapping[str, Any]) -> Any:
    changes: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        if rest:
            groups.setdefault(head, {})[rest] = value
        else:
            changes[head] = value
    names = {field.name for field in dataclasses.fields(config)}
    for head, nested in groups.items():
        if head in names:
            changes[head] = _replace(getattr(config, head), nested)
        else:
            place = _open_field(config)
            held = changes.get(place, getattr(config, place))
            changes[place] = held.replaced(head, _replace(held[head], nested))
    return dataclasses.replace(config, **changes)


def _open_field(config: Any) -> str:
    [name] = [field.name for field in dataclasses.fields(config) if isinstance(getattr(config, field.name), OpenGroups)]
    return name
