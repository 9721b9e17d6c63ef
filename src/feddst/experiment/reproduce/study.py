"""A study: rows of one's own, written down in a TOML file, made as the paper's tables are.

title = "Masks that move and masks that do not"
preset = "thrifty"             # what all rows begin with; may be left out
caps = [0.04, 0.4]             # GiB
against = "static"             # the row that others are compared with, but for those that name one themselves
[options]                      # what all rows share, as in a run's config
sparsity.level = 0.9
data.held_out = 10000
[rows.static]
title = "RandomMask"
options = { method = "randommask" }
[rows.moving]
title = "Sprout"
options = { method = "sprout", sprout.alpha = 0.05 }
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from feddst.errors import OptionError
from feddst.experiment.config import RunConfig, refuse_ineffective
from feddst.experiment.presets import Row, preset_options
from feddst.experiment.reproduce.record import STUDY
from feddst.experiment.reproduce.request import Request
from feddst.options import dotted, hint, one_of, updated

KEYS = ("title", "preset", "caps", "against", "options", "rows")
ROW_KEYS = ("title", "against", "options")
FIXED = ("seed", "rounds", "cap_gib", "checkpoint_every", "data.root")
"""Options of runs that a study or its command line gives in other ways."""
OF_ALL_ROWS = ("data.dataset", "data.held_out")
"""Options in which rows cannot differ: images are loaded once."""


@dataclass(frozen=True)
class StudyConfig(Request):
    """Which study, how often, and where it is computed."""

    @property
    def command(self) -> str:
        return STUDY

    @property
    def subject(self) -> str:
        return STUDY

    @property
    def reading(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return Path(self.target).stem

    @property
    def caps(self) -> tuple[float, ...]:
        return tuple(self.content["caps"])

    @property
    def data_title(self) -> str:
        names = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "folder": "images"}
        return names[updated(RunConfig(), self.shared).data.dataset]

    @property
    def classes(self) -> int | None:
        return {"mnist": 10, "cifar10": 10, "cifar100": 100}.get(updated(RunConfig(), self.shared).data.dataset)

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        usual = self.content.get("against", "")
        others = {name: row.get("against", usual) for name, row in self.content["rows"].items()}
        return tuple((name, other) for name, other in others.items() if other not in ("", name))

    @property
    def shared(self) -> dict[str, Any]:
        """The options that all rows share."""
        return {**preset_of(self.content), **dotted(self.content.get("options", {}))}

    @cached_property
    def content(self) -> dict[str, Any]:
        """What the file says, checked."""
        return read_study(Path(self.target))

    def all_rows(self) -> list[Row]:
        found: list[Row] = []
        for name, row in self.content["rows"].items():
            own = dotted(row.get("options", {}))
            method = str(own.pop("method", self.shared.get("method", RunConfig().method)))
            found.append(Row(name, row.get("title", name), method, own))
        return found

    def options(self, row: Row) -> Mapping[str, Any]:
        return {**self.shared, **row.own, "method": row.method, "cap_gib": max(self.caps)}

    def check(self) -> None:
        for row in self.all_rows():
            refuse_ineffective([row.method], row.own)
        super().check()


def read_study(path: Path) -> dict[str, Any]:
    """What a study's file says. Raises `OptionError` at the first thing that is not as it should be."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise OptionError(f"cannot read study {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"study {path} is not valid TOML: {error}") from None
    _check_keys(f"study {path}", content, KEYS)
    caps, rows, shared = content.get("caps"), content.get("rows"), content.get("options", {})
    if not isinstance(caps, list) or not caps or any(not isinstance(cap, int | float) or cap <= 0 for cap in caps):
        raise OptionError(f"study {path}: caps must be a list of GiB above 0, got {caps!r}")
    if not isinstance(rows, dict) or not rows or not all(isinstance(row, dict) for row in rows.values()):
        raise OptionError(f"study {path}: rows must be tables, [rows.NAME], and at least one")
    for name, row in rows.items():
        _check_keys(f"study {path}: rows.{name}", row, ROW_KEYS)
        _check_options(f"study {path}: rows.{name}.options", row.get("options", {}))
        for own in dotted(row.get("options", {})):
            if own in OF_ALL_ROWS:
                raise OptionError(f"study {path}: rows.{name}.options: {own} is for all rows: put it under [options]")
    _check_options(f"study {path}: options", shared)
    preset_of(content)
    for where, table in {
        f"study {path}": content,
        **{f"study {path}: rows.{name}": rows[name] for name in rows},
    }.items():
        if "against" in table and table["against"] not in rows:
            raise OptionError(f"{where}: against must be {one_of(rows)}, got {table['against']!r}")
    return content


def preset_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the preset that a study's rows begin with, but for what is not a study's to set."""
    given = preset_options(content["preset"], "run") if "preset" in content else {}
    return {name: value for name, value in given.items() if name not in FIXED}


def _check_keys(what: str, table: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for key in table:
        if key not in allowed:
            raise OptionError(f"{what}: unknown key {key!r}{hint(key, allowed)}; it must be {one_of(allowed)}")


def _check_options(what: str, options: Any) -> None:
    if not isinstance(options, dict):
        raise OptionError(f"{what} must be a table, got {options!r}")
    for name in dotted(options):
        if name in FIXED or name.startswith("engine."):
            raise OptionError(f"{what}: {name} is not a study's to set: the command line and the caps do that")
