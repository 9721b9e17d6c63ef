"""Configs as TOML files: the same options as on the command line, by the same names."""

import json
import tomllib
from pathlib import Path
from typing import Any

from feddst.errors import OptionError
from feddst.options import dotted
from feddst.runtime.config import RunConfig, options_to_store


def dump(config: RunConfig, heading: str) -> str:
    """The options of a config as `group.name = value` lines."""
    lines = [f"{name} = {_value(value)}" for name, value in options_to_store(config).items()]
    return "\n".join([f"# {heading}", *lines]) + "\n"


def read(path: Path) -> dict[str, Any]:
    """The options in a TOML file, by dotted name; tables and dotted keys mean the same."""
    try:
        with path.open("rb") as file:
            return dotted(tomllib.load(file))
    except OSError as error:
        raise OptionError(f"cannot read config {path}: {error.strerror or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"config {path} is not valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise OptionError(f"config {path} is not UTF-8 text") from None


def _value(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
