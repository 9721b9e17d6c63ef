"""Command-line words to option values, by the declarations in the config dataclasses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from feddst.errors import OptionError
from feddst.options import Option, option_hint
from feddst.runtime.old_names import OPTIONS, renewed


@dataclass(frozen=True)
class Arguments:
    """What a command was given: option values by dotted name, and the words that belong to no option."""

    values: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    help: bool = False


def parse(
    given: Sequence[str], options: Sequence[Option], *, words: int = 0, unneeded: Mapping[str, str] | None = None
) -> Arguments:
    """Read `--name value` and `--name=value`, and up to `words` words without a name.

    Dashes and underscores in names mean the same. A yes-or-no option stands alone and means yes. `unneeded` maps
    options that do not exist, but that a user may expect, to what to do instead.
    """
    known = {opt.name: opt for opt in options}
    values: dict[str, Any] = {}
    loose: list[str] = []
    rest = iter(given)
    for word in rest:
        if word in ("-h", "--help"):
            return Arguments(help=True)
        if not word.startswith("-"):
            loose.append(word)
            continue
        name, opt, text = _option(word, known, unneeded or {})
        if name in values:
            raise OptionError(f"--{name} is given twice")
        values[name] = opt.parse(_value(opt, text, rest))
    if len(loose) > words:
        raise _unexpected(loose[words], values)
    return Arguments(renewed(values, "the command line"), tuple(loose))


def _option(word: str, known: dict[str, Option], unneeded: Mapping[str, str]) -> tuple[str, Option, str | None]:
    """The name in a word, the option that it stands for, and the value if that is in the same word."""
    given, equals, text = word.partition("=")
    name = given.removeprefix("--").replace("-", "_")
    opt = known.get(OPTIONS.get(name, name))
    if not given.startswith("--") or opt is None:
        advice = f": {unneeded[name]}" if name in unneeded else option_hint(name.lstrip("_"), known, "--{}")
        raise OptionError(f"unknown option {given}{advice}")
    return name, opt, text if equals else None


def _unexpected(word: str, values: Mapping[str, Any]) -> OptionError:
    meant_out = values.get("resume") and "out" not in values
    advice = f"did you mean --out {word}?" if meant_out else "options are written --name value"
    return OptionError(f"unexpected argument {word!r}; {advice}")


def _value(opt: Option, text: str | None, rest: Iterator[str]) -> str:
    if text is not None:
        return text
    if opt.type is bool:
        return "true"
    text = next(rest, None)
    if text is None or text.startswith("--"):
        raise OptionError(f"--{opt.name} needs a value: {opt.allowed()}")
    return text
