"""With which options runs were made, and the commands that make them."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddst.experiment.config import RunConfig
from feddst.methods import METHODS
from feddst.options import as_words, flatten
from feddst.report.entries import SAME, Entry, shown
from feddst.report.sources import FoundRun, Source

NO_EFFECT = "–"


@dataclass(frozen=True)
class Setting:
    """An option and its value in each entry; `differs` if this is not the same for all."""

    name: str
    values: tuple[str, ...]
    differs: bool


def settings(entries: Sequence[Entry]) -> list[Setting]:
    """Every option of the entries."""
    configs = [effective(entry.config) for entry in entries]
    names = list(dict.fromkeys(name for config in configs for name in config))
    return [_setting(name, [config.get(name, NO_EFFECT) for config in configs]) for name in names]


def effective(config: Mapping[str, Any]) -> dict[str, str]:
    """Options as their method takes them: with what it fixes, and without the value of those it does not use."""
    kind = METHODS.get(str(config.get("method", "")))
    if kind is None:
        return {name: shown(value) for name, value in config.items()}
    used = {field.name for field in dataclasses.fields(kind)}
    others = {field.name for other in METHODS.values() for field in dataclasses.fields(other)} - used
    return {
        name: NO_EFFECT if name.partition(".")[0] in others else shown(kind.pins.get(name, value))
        for name, value in config.items()
    }


def commands(sources: Sequence[Source]) -> list[str]:
    """What makes the runs: one command for a comparison or a reproduction, else one for each run."""
    found: list[str] = []
    for source in sources:
        if source.command:
            found.append(source.command)
        elif not source.python:
            found += [run_command(run) for run in source.runs]
    return list(dict.fromkeys(found))


def run_command(run: FoundRun) -> str:
    """The command line that stands for a run: what differs from the defaults."""
    usual = flatten(RunConfig())
    changed = {name: value for name, value in run.config.items() if value != usual.get(name)}
    own = {"method": run.config.get("method", ""), "seed": run.seed}
    return shlex.join(["feddst", "run", *as_words(own | changed)])


def report_command(paths: Sequence[Path]) -> str:
    """The command line that makes the report again."""
    return shlex.join(["feddst", "report", *map(str, paths)])


def _setting(name: str, values: Sequence[str]) -> Setting:
    return Setting(name, tuple(values), len(set(values)) > 1 and name not in SAME)
