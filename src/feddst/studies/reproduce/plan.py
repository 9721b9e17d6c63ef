"""Which runs a reproduction has, and how each of them stands on the disk."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from feddst.runtime.config import RunConfig, method_named
from feddst.runtime.presets import Row
from feddst.runtime.storage import RunDirectory, Standing
from feddst.studies.reproduce.request import Request
from feddst.wire import nominal_bits


@dataclass(frozen=True)
class PlannedRun:
    """One seed of a row; `standing` is how it stood when the plan was made."""

    seed: int
    config: RunConfig
    directory: RunDirectory
    standing: Standing


@dataclass(frozen=True)
class PlannedRow:
    """A row with all its seeds; those `wanted` are played now, the others are only recorded."""

    row: Row
    runs: tuple[PlannedRun, ...]
    wanted: range

    @property
    def asked(self) -> tuple[PlannedRun, ...]:
        """The runs of the wanted seeds."""
        return tuple(run for run in self.runs if run.seed in self.wanted)

    @property
    def unfinished(self) -> tuple[PlannedRun, ...]:
        """The runs to be played."""
        return tuple(run for run in self.asked if run.standing != "finished")

    def parts(self, count: int) -> list["PlannedRow"]:
        """The runs to be played, divided evenly into at most `count` rows, none without a run."""
        runs = self.unfinished
        return [replace(self, runs=runs[i::count]) for i in range(min(count, len(runs)))]

    @property
    def bits_a_weight(self) -> float:
        """About the bits of an update for each weight of the model: the fewer, the more rounds fit under a cap."""
        config = self.runs[0].config
        own = {field.name for field in fields(method_named(config.method))}
        sparsity = config.sparsity.level if "sparsity" in own else 0.0
        if "sprout" in own:
            sparsity = max(sparsity, config.sprout.start)
        return nominal_bits(config.wire.values) * (1 - sparsity)


def plan(config: Request, out: Path, changes: Mapping[str, Any]) -> list[PlannedRow]:
    """Every row of the target; raises if a directory holds a run that does not belong.

    Rows and seeds that are not asked for now are included as far as earlier calls made them.
    """
    rows, seeds = config.wanted_rows(), config.wanted_seeds()
    return [_planned(config, out, changes, row, seeds if row in rows else range(0)) for row in config.all_rows()]


def _planned(config: Request, out: Path, changes: Mapping[str, Any], row: Row, wanted: range) -> PlannedRow:
    seeds = {*_seeds_made(out, row), *wanted}
    runs: list[PlannedRun] = []
    for seed in sorted(seeds):
        one, directory = config.run_config(row, seed, changes), RunDirectory(out / f"{row.name}-seed{seed}")
        runs.append(PlannedRun(seed, one, directory, directory.standing(one)))
    return PlannedRow(row, tuple(runs), wanted)


def _seeds_made(out: Path, row: Row) -> list[int]:
    if not out.is_dir():
        return []
    found = [re.fullmatch(re.escape(row.name) + r"-seed(\d+)", entry.name) for entry in out.iterdir()]
    return [int(match[1]) for match in found if match is not None]
