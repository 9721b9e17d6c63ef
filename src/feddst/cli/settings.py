"""From a preset, a TOML file and the command line to one set of options: each overrules the one before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddst.cli.arguments import Arguments
from feddst.errors import OptionError
from feddst.options import Option, option, option_hint
from feddst.runtime import toml
from feddst.runtime.old_names import named_now, renewed
from feddst.runtime.presets import Command, preset_options


@dataclass(frozen=True)
class Origin:
    """Where the options come from."""

    preset: str = option("", "start from these options: `feddst presets` lists them")
    config: str = option("", "a TOML file of options, over the preset and under those given here")


@dataclass(frozen=True)
class Common(Origin):
    """Where the options come from and where results go."""

    out: str = option("", "directory for everything the command writes; empty: a new one under runs/")


@dataclass(frozen=True)
class RunArguments(Common):
    """Where the options come from and where results go."""

    resume: bool = option(False, "go on with the run in --out; only how far it goes may change")


@dataclass(frozen=True)
class Settings:
    """Options by where they come from."""

    preset: Mapping[str, Any]
    file: Mapping[str, Any]
    typed: Mapping[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """All options given, the strongest source last."""
        return named_now({**self.preset, **self.file, **self.typed})

    def asked_for(self, options: Sequence[Option]) -> dict[str, Any]:
        """Options that the user set on purpose.

        A file may name every option, as a run's own config.toml does; one at its default does not count.
        """
        defaults = {opt.name: opt.default for opt in options}
        changed = {name: value for name, value in self.file.items() if value != _plain(defaults[name])}
        return named_now({**changed, **self.typed})


def gather(given: Arguments, command: Command, options: Sequence[Option]) -> Settings:
    """Everything the user gave for a command whose config has these options."""
    names = {opt.name for opt in options}
    named = given.values.get("preset", "")
    path = given.values.get("config", "")
    return Settings(
        preset=preset_options(named, command) if named else {},
        file=_read(Path(path), names) if path else {},
        typed={name: value for name, value in given.values.items() if name in names},
    )


def _read(path: Path, names: set[str]) -> dict[str, Any]:
    values = renewed(toml.read(path), str(path))
    for name in values:
        if name not in names:
            raise OptionError(f"unknown option {name!r} in {path}{option_hint(name, names)}")
    return values


def _plain(value: Any) -> Any:
    """A default as a TOML file would give it."""
    return list(value) if isinstance(value, tuple) else value
