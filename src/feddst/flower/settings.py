"""All options of a run under Flower as a Flower app has them: flat keys with plain values, in its `pyproject.toml`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddst.errors import OptionError
from feddst.flower.config import FlowerConfig, Value
from feddst.options import Option, hint, option, options_of, updated
from feddst.runtime.config import RunConfig, config_of
from feddst.runtime.old_names import OPTIONS, old_in, renewed, say
from feddst.runtime.storage import write_atomically


@dataclass(frozen=True)
class AppConfig:
    """Options of a Flower app beyond those of the run."""

    out: str = option("", "directory on the server's machine that the run is written to; empty: it is not written")
    resume: bool = option(False, "go on with the run in `out`")
    flower: FlowerConfig = FlowerConfig()

    def check(self) -> None:
        """Raise `OptionError` if there is nothing to resume."""
        if self.resume and not self.out:
            raise OptionError("resume needs out, the directory of the run to go on with")


USUAL: Mapping[str, Value] = {"data.clients": 10, "cohort.size": 10, "rounds": 20, "checkpoint_every": 1}
"""An app's defaults that differ from the usual ones: a federation is smaller than a simulation, and may be killed."""


def app_options() -> list[Option]:
    """Every option of an app."""
    return options_of(AppConfig) + options_of(RunConfig)


def app_values() -> dict[str, Value]:
    """Every key of an app with its value, as Flower can have it: lists are texts with commas."""
    return {opt.name: _plain(opt.default) for opt in app_options()} | dict(USUAL)


def as_run_config(values: Mapping[str, Any]) -> dict[str, Value]:
    """Options by name as Flower can have them."""
    return {name: _plain(value) for name, value in values.items()}


def read_run_config(values: Mapping[str, Value]) -> tuple[RunConfig, AppConfig]:
    """Both configs in a run config; raises `OptionError` at the first option that is not allowed."""
    known, today = {opt.name: opt for opt in app_options()}, renewed(values)
    for name in today:
        if name not in known:
            raise OptionError(f"unknown option {name!r}{hint(name, known)}")
    read = {name: _read(known[name], value) for name, value in today.items()}
    own = {opt.name for opt in options_of(AppConfig)}
    # An app's file names every option: one at its default is left to the method.
    given = {name: value for name, value in read.items() if name not in own and value != known[name].default}
    say("the app's config", old_in({name: values[name] for name in values if name in OPTIONS or name in given}))
    config = config_of(given)
    app = updated(AppConfig(), {name: value for name, value in read.items() if name in own})
    config.check()
    app.check()
    return config, app


def app_project() -> str:
    """The `pyproject.toml` of a Flower app that runs FedDST on the bundled digits; such an app has no other file."""
    return "\n".join(
        [
            "[project]",
            'name = "feddst-app"',
            'version = "1.0.0"',
            'description = "Federated learning with dynamic sparse training"',
            'license = "MIT"',
            "# Nothing is fetched: feddst must be installed wherever this app runs.",
            "dependencies = []",
            "",
            "[tool.flwr.app]",
            'publisher = "feddst"',
            "",
            "[tool.flwr.app.components]",
            'serverapp = "feddst.flower.app:server_app"',
            'clientapp = "feddst.flower.app:client_app"',
            "",
            "# Every option of `feddst run`, and those of the server; `flwr run . --run-config 'rounds=5'` sets one.",
            "[tool.flwr.app.config]",
            *(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in app_values().items()),
            "",
        ]
    )


def write_app(folder: Path) -> Path:
    """Write such an app to a directory, which is made if need be; returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "pyproject.toml", app_project().encode())
    return folder / "pyproject.toml"


def _plain(value: Any) -> Value:
    plain: Value = ",".join(map(str, value)) if isinstance(value, tuple) else value
    return plain


def _read(opt: Option, value: Value) -> Any:
    """A value of a run config as the option's type."""
    return opt.parse(value) if opt.repeated and isinstance(value, str) else opt.check(value)
