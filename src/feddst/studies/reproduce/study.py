"""A study: your own rows, described in a TOML file and made as the paper's tables are.

title = "Masks that move and masks that do not"
preset = "thrifty"             # what all rows begin with; may be left out
caps = [0.04, 0.4]             # GiB
against = "static"             # the row that others are compared with, unless they name one themselves
[options]                      # what all rows share, as in a run's config
sparsity.level = 0.9
data.held_out = 10000
[rows.static]
title = "RandomMask"
options = { method = "randommask" }
[rows.moving]
title = "FedDST"
options = { method = "feddst", readjust.alpha = 0.05 }
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from feddst.errors import OptionError
from feddst.options import dotted, hint, one_of, updated
from feddst.runtime.config import RunConfig, refuse_ineffective
from feddst.runtime.old_names import old_in, renewed, say
from feddst.runtime.presets import Row, preset_options
from feddst.runtime.session import refuse_mixed_metrics
from feddst.studies.reproduce.record import STUDY
from feddst.studies.reproduce.request import Request, rising

KEYS = ("title", "preset", "caps", "against", "options", "rows")
ROW_KEYS = ("title", "against", "options")
FIXED = ("seed", "rounds", "cap_gib", "checkpoint_every", "data.root")
"""Options of runs that a study or its command line gives in other ways."""
OF_ALL_ROWS = ("accounting", "data.dataset", "data.held_out", "data.clients", "data.partition")
"""Options that all rows share: images are loaded once, and a table has one data set and one accounting."""
_ROW_NAME = re.compile(r"[\w+-][\w.+-]*")
"""Names that can be typed in a list of rows, and be part of a directory's name."""


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
    def upload_caps(self) -> tuple[float, ...]:
        return tuple(self.content["caps"])

    @property
    def dataset(self) -> str:
        return updated(RunConfig(), self.shared).data.dataset

    @property
    def title(self) -> str:
        return str(self.content.get("title", ""))

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
        usual = self.shared.get("method", RunConfig().method)
        return [Row.read(name, row, usual) for name, row in self.content["rows"].items()]

    def options(self, row: Row) -> Mapping[str, Any]:
        return {**self.shared, **row.own, "method": row.method, "cap_gib": max(self.upload_caps)}

    def check(self) -> None:
        shared = self.shared
        with _named(f"study {self.target}: options"):
            updated(RunConfig(), shared)
        super().check()
        with _named(f"study {self.target}"):
            refuse_mixed_metrics({f"rows.{row.name}": self.run_config(row, 0) for row in self.all_rows()})

    def check_row(self, row: Row) -> None:
        with _named(f"study {self.target}: rows.{row.name}"):
            refuse_ineffective([self.run_config(row, 0)], row.own)
            super().check_row(row)


def read_study(path: Path) -> dict[str, Any]:
    """What a study's file says. Raises `OptionError` at the first invalid entry."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise OptionError(f"cannot read study {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"study {path} is not valid TOML: {error}") from None
    with _named(f"study {path}"):
        _check_keys(content, KEYS)
        _check_texts(content, ("title", "preset", "against"))
        _check_caps(content.get("caps"))
        rows = content.get("rows")
        if not isinstance(rows, dict) or not rows or not all(isinstance(row, dict) for row in rows.values()):
            raise OptionError("rows must be tables, [rows.NAME], and at least one")
        for name, row in rows.items():
            if not _ROW_NAME.fullmatch(name):
                raise OptionError(f"rows must be named by letters, digits and + - . _, a dot not first, got {name!r}")
            with _named(f"rows.{name}"):
                _check_row(row, rows)
        _check_options(content.get("options", {}))
        _check_against(content, rows)
        preset_of(content)
        _renew(content, path)
    return content


def _renew(content: dict[str, Any], path: Path) -> None:
    """Give options of earlier versions today's names."""
    tables = [table for table in (content, *content["rows"].values()) if "options" in table]
    for table in tables:
        table["options"] = dotted(table["options"])
    say(str(path), [line for table in tables for line in old_in(table["options"])])
    shared = content.get("options", {})
    usual = shared.get("method", preset_of(content).get("method", RunConfig.method))
    methods = [row.get("options", {}).get("method", usual) for row in content["rows"].values()]
    of_all = renewed({name: value for name, value in shared.items() if name != "method"} | {"methods": methods})
    for table in tables:
        table["options"] = renewed(table["options"])
    if "options" in content:
        content["options"] |= {name: value for name, value in of_all.items() if name != "methods"}


def preset_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the preset that a study's rows begin with, without those that a study cannot set."""
    given = preset_options(content["preset"], "run") if "preset" in content else {}
    return {name: value for name, value in given.items() if name not in FIXED}


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Errors of options in here begin with `where`."""
    try:
        yield
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from None


def _check_row(row: Mapping[str, Any], rows: Mapping[str, Any]) -> None:
    _check_keys(row, ROW_KEYS)
    _check_texts(row, ("title", "against"))
    _check_options(row.get("options", {}))
    _check_against(row, rows)
    for own in dotted(row.get("options", {})):
        if own in OF_ALL_ROWS:
            raise OptionError(f"options: {own} is for all rows: put it under [options]")


def _check_keys(table: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for key in table:
        if key not in allowed:
            raise OptionError(f"unknown key {key!r}{hint(key, allowed)}; it must be {one_of(allowed)}")


def _check_texts(table: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if not isinstance(table.get(key, ""), str):
            raise OptionError(f"{key} must be text, got {table[key]!r}")


def _check_caps(caps: Any) -> None:
    numbers = caps if isinstance(caps, list) and all(type(cap) in (int, float) for cap in caps) else []
    if not rising(numbers):
        raise OptionError(f"caps must be a list of GiB above 0, each above the one before it, got {caps!r}")


def _check_options(options: Any) -> None:
    if not isinstance(options, dict):
        raise OptionError(f"options must be a table, got {options!r}")
    for name in dotted(options):
        if name in FIXED or name.startswith("engine."):
            raise OptionError(f"options: {name} is not a study's to set: the command line and the caps do that")


def _check_against(table: Mapping[str, Any], rows: Mapping[str, Any]) -> None:
    if "against" in table and table["against"] not in rows:
        raise OptionError(f"against must be {one_of(rows)}, got {table['against']!r}")
