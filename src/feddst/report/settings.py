"""The options that runs were made with, and the commands that make them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddst.methods import METHODS, why_idle
from feddst.options import as_words, flatten
from feddst.report.entries import SAME, Entry, shown
from feddst.report.sources import FoundRun, Source
from feddst.runtime.config import config_of
from feddst.studies.reproduce.record import each_command

NO_EFFECT = "–"
OWN = "own"
"""Shown for a data set or a network of the user's own."""
UNKNOWN = "?"


@dataclass(frozen=True)
class Setting:
    """An option and its value in each entry; `differs` if this is not the same for all."""

    name: str
    values: tuple[str, ...]
    differs: bool


def settings(entries: Sequence[Entry]) -> list[Setting]:
    """Every option of the entries."""
    configs = [effective(entry.config) | _own(entry) for entry in entries]
    names = list(dict.fromkeys(name for config in configs for name in config))
    return [_setting(name, [config.get(name, NO_EFFECT) for config in configs]) for name in names]


def effective(config: Mapping[str, Any]) -> dict[str, str]:
    """Options as their method uses them: those it fixes at its values, those it does not use without one."""
    kind = METHODS.get(str(config.get("method", "")))
    if kind is None:
        return {name: shown(value) for name, value in config.items()}
    idle = why_idle(kind, config)
    return {
        name: shown(kind.pins.get(name, value)) if idle(name) is None else NO_EFFECT for name, value in config.items()
    }


def commands(sources: Sequence[Source]) -> list[str]:
    """The commands that make the runs: that of a comparison or a reproduction, else one for each run that has one."""
    found: list[str] = []
    for source in sources:
        if source.command:
            found += [_into(command, source.path) for command in each_command(source.command)]
        elif not source.python:
            found += [_into(run_command(run), run.path) for run in source.runs if not run.made_with.own]
    return list(dict.fromkeys(found))


def beyond_commands(sources: Sequence[Source]) -> str:
    """A remark on runs that no command makes, or perhaps none does; empty if there are none."""
    runs = [(source, run) for source in sources for run in source.runs]
    made = [run for source, run in runs if source.python or run.made_with.own]
    if made:
        whose = "These runs were" if len(made) == len(runs) else "Some of these runs were"
        return (
            f"{'This run was' if len(runs) == 1 else whose} given a model or data of the user's own, for which there "
            "is no command: make it again from Python, with the same model and data."
        )
    if any(run.made_with.unknown for _, run in runs):
        return (
            "Whether a run was given a model or data of the user's own cannot be told here. If so, make it again from "
            "Python, with the same model and data."
        )
    return ""


def run_command(run: FoundRun) -> str:
    """The command line that stands for a run: what differs from the defaults."""
    usual = flatten(config_of({"method": str(run.config.get("method", ""))}))
    changed = {name: value for name, value in run.config.items() if value != usual.get(name)}
    own = {"method": run.config.get("method", ""), "seed": run.seed}
    return shlex.join(["feddst", "run", *as_words(own | changed)])


def report_command(paths: Sequence[Path]) -> str:
    """The command line that makes the report again."""
    return shlex.join(["feddst", "report", *map(str, paths)])


def _own(entry: Entry) -> dict[str, str]:
    """Options whose value means nothing, as the user's own network or data replaced what they name."""
    found = entry.runs[0].made_with
    words = {True: OWN, None: UNKNOWN}
    options = {"data.dataset": found.data, "data.root": found.data, "model.name": found.network}
    return {name: words[own] for name, own in options.items() if found.own and own is not False}


def _into(command: str, path: Path) -> str:
    """A command with the place where its runs are."""
    return command if "--out" in shlex.split(command) else f"{command} --out {shlex.quote(str(path))}"


def _setting(name: str, values: Sequence[str]) -> Setting:
    return Setting(name, tuple(values), len(set(values)) > 1 and name not in SAME)
