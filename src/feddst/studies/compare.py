"""Carrying out a comparison: one run after another, the finished ones skipped, the others resumed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from feddst.data import DataConfig, Dataset, Federation, load
from feddst.data.adapters import Source
from feddst.errors import OptionError
from feddst.models import ModuleSource
from feddst.notebook import in_notebook
from feddst.options import updated
from feddst.runtime.bars import Bars
from feddst.runtime.config import RunConfig
from feddst.runtime.lines import Lines
from feddst.runtime.lock import locked
from feddst.runtime.loop import Watcher
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.session import Loss, Metrics, checked_data, run, with_objective
from feddst.runtime.several import Several, check_callbacks
from feddst.runtime.storage import RunDirectory, Standing
from feddst.studies.comparison import CompareConfig, Comparison, Curve, Entry
from feddst.studies.reports import begin, refuse_foreign, write_reports


@dataclass(frozen=True)
class Turn:
    """One run of a comparison, and how it stands before its turn; `place` counts from 1."""

    place: int
    total: int
    entry: Entry
    seed: int
    config: RunConfig
    directory: RunDirectory
    standing: Standing


class CompareWatcher(Watcher, Protocol):
    """A watcher that also hears which run is next."""

    def turn(self, turn: Turn) -> None:
        """This run is about to begin, to go on, or to be skipped because it is finished."""
        ...


class _Turns(Lines):
    """Tells runs apart by their names in the comparison."""

    def __init__(self) -> None:
        super().__init__()
        self._turn: Turn | None = None

    def turn(self, turn: Turn) -> None:
        self._turn = turn

    def name_of(self, run: Run) -> str:
        turn = self._turn
        if turn is None or run.directory is None or run.directory.path != turn.directory.path:
            return run.name  # not of this comparison
        return f"{turn.entry.label}, seed {turn.seed}"


class ComparisonLines(_Turns):
    """One line for each evaluation of each run, with the run's name in the comparison."""


class ComparisonBars(_Turns, Bars):
    """In a notebook, one bar for each run with that name."""


def compare(
    config: CompareConfig | None = None,
    *,
    out: str | Path,
    model: ModuleSource | None = None,
    data: Dataset | Federation | tuple[Source, Source] | None = None,
    loss: Loss | None = None,
    metrics: Metrics = (),
    watcher: CompareWatcher | None = None,
    callbacks: Sequence[Watcher] = (),
) -> Comparison:
    """Run every method with every seed, each into its own directory under `out`, and compare them.

    All runs of a seed have the same partition and initial weights. Called again with the same `out`, it skips
    runs that are finished and goes on with the others. `model`, `data`, `loss`, `metrics` and `callbacks` are as for
    `run`; a callback with `turn` hears whose turn it is.
    """
    if config is not None and not isinstance(config, CompareConfig):
        raise OptionError(f"config must be a CompareConfig, got {type(config).__name__}; a run's goes in as its base")
    check_callbacks(callbacks)
    for callback in callbacks:
        if getattr(callback, "ends_runs", False):
            raise OptionError(
                f"callbacks: {type(callback).__name__} would end the comparison with the first run that it ends; "
                "use it with feddst.run"
            )
    config, data = config or CompareConfig(), checked_data(data)
    config = replace(config, base=with_objective(config.base, loss, metrics))
    if isinstance(data, Federation):
        config = replace(config, base=updated(config.base, {"data.clients": data.num_clients}))
    config.check()
    path = Path(out)
    refuse_foreign(path, config)
    usual = ComparisonBars() if in_notebook() else ComparisonLines()
    ours = [usual, *callbacks] if watcher is None else callbacks
    own = model is not None or data is not None or loss is not None or bool(metrics)
    with locked(path), Several(*ours, guest=watcher) as called:
        return _compare(config, path, model, data, called, reproducible=not own)


def _compare(
    config: CompareConfig,
    path: Path,
    model: ModuleSource | None,
    data: Dataset | Federation | None,
    watcher: CompareWatcher,
    *,
    reproducible: bool,
) -> Comparison:
    turns = plan(config, path)
    comparison = Comparison(config, (), path, False, describe_data(config.base.data, data), reproducible=reproducible)
    curves: list[Curve[Row]] = []
    for turn in turns:
        if turn.standing != "finished":
            data = load(config.base.data) if data is None else data
        watcher.turn(turn)
        if turn.standing != "finished":
            begin(comparison)
        complete = turn.standing == "finished" or _play(turn, model, data, watcher)
        curves.append(_curve(turn))
        last = turn is turns[-1]
        stopped = not complete or (not last and watcher.stop())
        comparison = replace(comparison, curves=tuple(curves), finished=complete and last)
        if stopped or last or turn.standing != "finished":
            write_reports(comparison)
        if stopped:
            break
    return comparison


def describe_data(config: DataConfig, data: Dataset | Federation | None) -> str:
    """The data of a comparison in words, for titles."""
    if isinstance(data, Federation):
        return data.description or f"{data.dataset.name}, {data.num_clients} clients{config.versions}{config.tested}"
    name = config.dataset if data is None else data.name
    return f"{name}, {config.clients} clients ({config.partition}){config.versions}{config.tested}"


def plan(config: CompareConfig, out: Path) -> list[Turn]:
    """The runs in their order, seed by seed; raises if a directory holds a run that does not belong."""
    pairs = [(entry, seed) for seed in config.seeds for entry in config.entries()]
    turns: list[Turn] = []
    for place, (entry, seed) in enumerate(pairs, 1):
        one = entry.config(config.base, seed, config.given)
        directory = RunDirectory(out / f"{entry.directory}-seed{seed}")
        turns.append(Turn(place, len(pairs), entry, seed, one, directory, directory.standing(one)))
    return turns


def _play(turn: Turn, model: ModuleSource | None, data: Dataset | Federation | None, watcher: Watcher) -> bool:
    """Take a run to its end; False if the watcher stopped it."""
    resume = turn.standing == "resumed"
    result = run(turn.config, model=model, data=data, out=turn.directory.path, resume=resume, watcher=watcher)
    return result.finished


def _curve(turn: Turn) -> Curve[Row]:
    rows, cap = tuple(turn.directory.rows()), turn.directory.cap_reached()
    return Curve(turn.entry.label, turn.seed, rows, turn.directory.path, turn.config.accounting, cap)
