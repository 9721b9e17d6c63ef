"""Runs that differ in nothing but the seed are one entry of a report, with a name of its own."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddst.report.sources import FoundRun, Source
from feddst.runtime.config import CHANGEABLE
from feddst.runtime.details import Detail
from feddst.runtime.metrics import Accounting, Row, is_known
from feddst.studies.comparison import Curve
from feddst.studies.reproduce.record import Point

SAME = CHANGEABLE | {"seed", "checkpoint_every"}
"""Options in which the runs of one entry may differ: they say how far a run goes, not how it goes."""
MANY = 3
"""More differing options than this are too many for a name."""


@dataclass(frozen=True)
class Entry:
    """Runs of one config, one a seed, in the order of their seeds."""

    label: str
    runs: tuple[FoundRun, ...]

    @property
    def config(self) -> Mapping[str, Any]:
        """The options that the runs share; in those of `SAME`, the first run's."""
        return self.runs[0].config

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def unfinished(self) -> list[int]:
        """The seeds whose run is unfinished."""
        return [run.seed for run in self.runs if not run.finished]

    @property
    def evaluated(self) -> int:
        """How many of the runs have had an evaluation."""
        return sum(any(is_known(row.score) for row in run.rows) for run in self.runs)

    @property
    def ends(self) -> list[Row | Point]:
        """The last row of each run that has one."""
        return [run.rows[-1] for run in self.runs if run.rows]

    def curves(self, accounting: Accounting) -> list[Curve[Row | Point]]:
        """The runs as tables and pictures take them, with this way to count the upload."""
        return [
            Curve(self.label, run.seed, run.rows, run.path, accounting, run.cap_gib if _same(run, accounting) else 0.0)
            for run in self.runs
        ]

    def first_details(self) -> tuple[int, tuple[Detail, ...]] | None:
        """The first seed that kept details, and these."""
        return next(((run.seed, run.details) for run in self.runs if run.details), None)


def group(sources: Sequence[Source]) -> list[Entry]:
    """The entries of all runs, in the order in which they were found; a run that is named twice counts once."""
    found: dict[Path, FoundRun] = {}
    for run in (run for source in sources for run in source.runs):
        place = run.path.resolve()
        # Where a run is found twice, a comparison or a record knows its name.
        if place not in found or not found[place].title:
            found[place] = run
    runs = list(found.values())
    groups: list[list[FoundRun]] = []
    for alike in _split(runs, _config_key):
        # Two runs of one config and seed are not two seeds: they were made apart, and stay apart.
        places = [alike] if _seeds_differ(alike) else _split(alike, lambda run: str(run.path.parent))
        for there in places:
            groups += [there] if _seeds_differ(there) else [[run] for run in there]
    ordered = [tuple(sorted(runs, key=lambda run: run.seed)) for runs in groups]
    return [Entry(label, runs) for label, runs in zip(_labels(ordered), ordered, strict=True)]


def differing(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The options, of those that make a difference, in which configs are not all the same."""
    configs = list(configs)
    names = list(dict.fromkeys(name for config in configs for name in config))
    return [name for name in names if name not in SAME and len({_key(config.get(name)) for config in configs}) > 1]


def shown(value: Any) -> str:
    """An option's value as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _same(run: FoundRun, accounting: Accounting) -> bool:
    """Whether a run's cap is one on the upload counted in this way."""
    return (run.accounting == "measured") == (accounting == "measured")


def _split(runs: Iterable[FoundRun], key: Callable[[FoundRun], str]) -> list[list[FoundRun]]:
    found: dict[str, list[FoundRun]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return list(found.values())


def _config_key(run: FoundRun) -> str:
    changing = {name: value for name, value in run.config.items() if name not in SAME}
    return _key([changing, run.made_with.own])


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _seeds_differ(runs: Sequence[FoundRun]) -> bool:
    return len({run.seed for run in runs}) == len(runs)


def _labels(groups: Sequence[Sequence[FoundRun]]) -> list[str]:
    """A name for each group: what it is called, then how it differs from those called the same, then where it is."""
    names = [runs[0].title or str(runs[0].config.get("method", "run")) for runs in groups]
    alike = {
        name: [runs[0].config for runs, other in zip(groups, names, strict=True) if other == name] for name in names
    }
    told = [name + _difference(alike[name], runs[0].config) for name, runs in zip(names, groups, strict=True)]
    same = {label: [_place(runs) for runs, other in zip(groups, told, strict=True) if other == label] for label in told}
    return [
        label if len(same[label]) == 1 else f"{label} in {told_apart(same[label])[_place(runs)]}"
        for label, runs in zip(told, groups, strict=True)
    ]


def told_apart(paths: Sequence[Path]) -> dict[Path, str]:
    """Each path without the parts that all begin and end with; whole, if that leaves nothing of one of them."""
    first = _alike([path.parts for path in paths])
    last = _alike([path.parts[first:][::-1] for path in paths])
    short = {path: "/".join(path.parts[first : len(path.parts) - last]) for path in paths}
    return short if all(short.values()) else {path: str(path) for path in paths}


def _alike(paths: Sequence[Sequence[str]]) -> int:
    """How many of their first parts the paths share."""
    return next((i for i, parts in enumerate(zip(*paths, strict=False)) if len(set(parts)) > 1), min(map(len, paths)))


def _difference(alike: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> str:
    names = differing(alike)
    parts = [f":{name}={shown(config.get(name))}" for name in names[:MANY]]
    return "".join(parts) + (":…" if len(names) > MANY else "")


def _place(runs: Sequence[FoundRun]) -> Path:
    return runs[0].path if len(runs) == 1 else runs[0].path.parent
