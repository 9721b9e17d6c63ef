"""One job, done in turn by this package, by PyTorch in plain processes, and by other frameworks' simulations."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.runners import (
    FRAMEWORKS,
    TUNED,
    Ours,
    Peer,
    PlainTorch,
    Runner,
    RunnerError,
    Turn,
    make_task,
    probe,
)
from benchmarks.tables import Table
from feddst.core.keys import LARGEST_SEED
from feddst.engines.select import cores
from feddst.options import check_list, option
from feddst.runtime.machine import commit, machine
from feddst.runtime.wording import counted

Tell = Callable[[str], None]

NONE = "–"
_FORMAT = 1


@dataclass(frozen=True)
class PeersBench:
    """What to measure."""

    flower: str = option("", "a Python interpreter with flwr[simulation] and torch; empty: Flower is not measured")
    pfl: str = option("", "a Python interpreter with pfl[pytorch]; empty: pfl-research is not measured")
    fedlab: str = option("", "a Python interpreter with fedlab and torch; empty: FedLab is not measured")
    levels: tuple[float, ...] = option(
        (0.8,),
        "sparsities S of FedDST, the first being what the others are compared with; 0: FedAvgM, dense",
        at_least=0,
        below=1,
    )
    rounds: int = option(5, "timed rounds in a turn, after one that is not timed", at_least=1)
    turns: int = option(3, "how often each has its turn", at_least=1)
    clients: int = option(20, "clients, all of which take part in every round", at_least=1)
    epochs: int = option(10, "passes over a client's images in a round", at_least=1)
    workers: int = option(0, "processes or threads of each; 0: one for each core", at_least=0)
    seed: int = option(0, "initial weights and clients follow from this", at_least=0, at_most=LARGEST_SEED)

    def check(self) -> None:
        """Raise `OptionError` if the sparsities make no list to measure."""
        check_list("levels", self.levels)


@dataclass(frozen=True)
class Standing:
    """One runner's turns; `failure` is why there is none after them, if so."""

    name: str
    versions: Mapping[str, str]
    turns: tuple[Turn, ...] = ()
    failure: str = ""

    @property
    def seconds(self) -> list[float]:
        """Of all timed rounds."""
        return [seconds for turn in self.turns for seconds in turn.seconds]

    @property
    def median(self) -> float:
        """Of the seconds of a round."""
        return statistics.median(self.seconds)

    @property
    def mean(self) -> float:
        """Of the seconds of a round: unlike the median, with what rare ones take longer."""
        return statistics.mean(self.seconds)


@dataclass(frozen=True)
class PeersRecord:
    """All that was measured: `standings` as they had their turns, this package's first."""

    bench: PeersBench
    workers: int
    standings: tuple[Standing, ...]
    missing: tuple[str, ...]
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether a runner failed."""
        return any(standing.failure for standing in self.standings)

    def ratio(self, standing: Standing) -> float:
        """How many times as long as this package's first one a runner takes."""
        return standing.median / self.standings[0].median

    def usual_ratio(self, standing: Standing) -> float:
        """The same beside the first one's mean, in which rounds count that readjust masks."""
        return standing.median / self.standings[0].mean

    def as_json(self, command: str) -> dict[str, Any]:
        """Everything, with where and how it was made. What failed is named, its message left out: it may hold paths."""
        return {
            "format": _FORMAT,
            "command": command,
            "commit": commit(),
            "machine": machine(),
            "workers": self.workers,
            "seconds": round(self.seconds, 1),
            "runners": [self._as_json(standing) for standing in self.standings],
            "not_measured": list(self.missing),
        }

    def _as_json(self, standing: Standing) -> dict[str, Any]:
        about: dict[str, Any] = {"name": standing.name, "versions": dict(standing.versions)}
        if not standing.turns:
            return about | {"failed": True}
        return about | {
            "failed": bool(standing.failure),
            "median": standing.median,
            "shortest": min(standing.seconds),
            "mean": standing.mean,
            "ratio": self.ratio(standing),
            "usual_ratio": self.usual_ratio(standing),
            "accuracy": [turn.accuracy for turn in standing.turns],
            "turns": [list(turn.seconds) for turn in standing.turns],
        }


def make_runners(bench: PeersBench) -> list[Runner]:
    """The runners to be measured; raises `OptionError` for an interpreter that cannot be used."""
    pythons = {framework: getattr(bench, framework.option) for framework in FRAMEWORKS}
    versions = {framework: probe(framework, python) for framework, python in pythons.items() if python}
    task = make_task(bench.clients, bench.epochs, bench.rounds, bench.workers or cores(), bench.seed)
    ours = [Ours(task, level) for level in bench.levels]
    peers = [
        Peer(task, framework, pythons[framework], found, tuned=tuned)
        for framework, found in versions.items()
        for tuned in (False, True)
    ]
    return [*ours, PlainTorch(task), *peers]


def measure(bench: PeersBench, runners: Sequence[Runner], tell: Tell) -> PeersRecord:
    """Give each runner a turn, then another, and so on; one that fails has no more. `tell` is given lines."""
    began = time.monotonic()
    turns: dict[str, list[Turn]] = {runner.name: [] for runner in runners}
    failures: dict[str, str] = {}
    for number in range(1, bench.turns + 1):
        for runner in runners:
            if runner.name in failures:
                continue
            try:
                turn = runner.turn()
            except RunnerError as error:
                failures[runner.name] = str(error)
                tell(f"turn {number} of {bench.turns}, {runner.name} failed: {error}")
            else:
                turns[runner.name].append(turn)
                tell(f"turn {number} of {bench.turns}, {runner.name}: {statistics.median(turn.seconds):.2f} s a round")
    standings = tuple(
        Standing(runner.name, runner.versions, tuple(turns[runner.name]), failures.get(runner.name, ""))
        for runner in runners
    )
    missing = tuple(framework.name for framework in FRAMEWORKS if not getattr(bench, framework.option))
    return PeersRecord(bench, bench.workers or cores(), standings, missing, time.monotonic() - began)


def table(record: PeersRecord) -> Table:
    """The record in a table."""
    first = record.standings[0].name
    heading = ("runner", "median", "min", "mean", f"× {first}", "× its mean", "accuracy %")
    return Table("Seconds a round", _caption(record), [heading, *(_line(record, one) for one in record.standings)])


def remarks(record: PeersRecord) -> list[str]:
    """What the table does not say: which runners are not in it, and why."""
    lines = [f"failed: {standing.name}: {standing.failure}" for standing in record.standings if standing.failure]
    options = {framework.name: framework.option for framework in FRAMEWORKS}
    return lines + [f"not measured: {name}, for lack of --{options[name]} PYTHON" for name in record.missing]


def _caption(record: PeersRecord) -> str:
    bench = record.bench
    return (
        f"Without start-up, first round and evaluation; {counted(bench.turns, 'turn')} of "
        f"{counted(bench.rounds, 'round')} for each runner, by turns. In a round {counted(bench.clients, 'client')} "
        f"train the paper's MNIST network for {counted(bench.epochs, 'epoch')} on 40 images each, and the server takes "
        f"the mean; {counted(record.workers, 'core')} for each runner. feddst trains sparse networks where S says so, "
        "the others dense ones. tuned: in the layout, with the optimizer and with the settings of memory with which "
        "PyTorch was found to be fastest, as PyTorch's own processes here; the rest as people write it. ×: by medians; "
        f"its mean: the median beside the mean of {record.standings[0].name}, in which rounds that readjust count. "
        "accuracy: of the last models on the clients' own images, to show that everybody has trained."
    )


def _line(record: PeersRecord, standing: Standing) -> Sequence[str]:
    name = _with_version(standing)
    if not standing.turns:
        return (name, *[NONE] * 6)
    seconds = standing.seconds
    return (
        name,
        f"{standing.median:.2f}",
        f"{min(seconds):.2f}",
        f"{standing.mean:.2f}",
        f"{record.ratio(standing):.2f}",
        f"{record.usual_ratio(standing):.2f}",
        f"{100 * statistics.mean(turn.accuracy for turn in standing.turns):.1f}",
    )


def _with_version(standing: Standing) -> str:
    """A runner's name, with the version of another framework, or with the engine that we trained in."""
    packages = {framework.name: framework.packages[0] for framework in FRAMEWORKS}
    engine = standing.versions.get("engine")
    if engine:
        return f"{standing.name} ({engine})"
    framework, tuned, _ = standing.name.partition(TUNED)
    return f"{framework} {standing.versions[packages[framework]]}{tuned}" if framework in packages else standing.name
