"""The round loop: several runs side by side, each of which gets what is its own, and none of which ends another."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from feddst.core import Aggregator
from feddst.data import Dataset, federate
from feddst.engines import EvalTask, Evaluation, ReferenceEngine, Sink
from feddst.errors import TrainingError
from feddst.runtime import RunConfig
from feddst.runtime.loop import SharedRound, Silent, play
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.session import open_run
from feddst.runtime.storage import RunDirectory
from feddst.wire import ClientResult, ClientTask, decode_update, mask_bytes

from .conftest import small_network

Configure = Callable[..., RunConfig]


class Noting(ReferenceEngine):
    """A reference engine that notes how many tasks it was given at once, and whether it was told that it is at work."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(small_network(), dataset, torch.device("cpu"))
        self.given: list[int] = []
        self.tests: list[int] = []
        self.working = self.worked = False

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        assert self.working
        self.given.append(len(tasks))
        super().run(tasks, sink)

    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        self.tests.append(len(tasks))
        return super().evaluate(tasks)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self.working = self.worked = True
        yield
        self.working = False


class Backwards(Noting):
    """Hands over results from the last task to the first: those of the last run come first."""

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        for index in reversed(range(len(tasks))):
            sink.result(index, self.answer(tasks[index]))


class Summing(Noting):
    """Adds up updates itself, two at a time, and hands over receipts for them."""

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        sums: dict[tuple[int, int], tuple[int, Aggregator]] = {}
        for index, task in enumerate(tasks):
            result = self.answer(task)
            assert result.payload is not None
            update = decode_update(result.payload, task)
            key = task.seed, index // 2
            sums.setdefault(key, (index, sink.empty_sum(index)))[1].add(update)
            size, masks = len(result.payload), mask_bytes(result.payload)
            own = None if update.masks is None else {name: int(mask.sum()) for name, mask in update.masks.items()}
            receipt = replace(result, payload=None, size=size, mask_bytes=masks, weight=update.weight, own=own)
            assert sink.result(index, receipt)
        for index, total in reversed(sums.values()):
            sink.partial(index, total)


class Refusing(Noting):
    """Says in one round that the run of one seed cannot go on."""

    def __init__(self, dataset: Dataset, seed: int, round: int) -> None:
        super().__init__(dataset)
        self._where = seed, round

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        super().run(tasks, sink)
        here = [index for index, task in enumerate(tasks) if (task.seed, task.round) == self._where]
        if here:
            sink.failed(here[0], TrainingError("the sums are full"))


class Watching(Silent):
    """Notes whose rows come; leaves off after so many rounds, if any."""

    def __init__(self, last: int = 0) -> None:
        self.rows: list[tuple[int, int]] = []
        self.begun: list[list[int]] = []
        self._last = last

    def started(self, runs: Sequence[Run]) -> None:
        self.begun.append([run.config.seed for run in runs])

    def row(self, run: Run, row: Row) -> None:
        self.rows.append((run.config.seed, row.round))

    def stop(self) -> bool:
        return bool(self._last) and self.rows[-1][1] >= self._last


@pytest.fixture
def runs_of(small_config: Configure, small_data: Dataset) -> Callable[..., list[Run]]:
    """A run of each seed, in a directory of that name if at all."""

    def make(*seeds: int, out: Path | None = None, resume: bool = False, **changes: Any) -> list[Run]:
        runs: list[Run] = []
        for seed in seeds:
            config = small_config(**{"seed": seed, "rounds": 3, "local__epochs": 1, **changes})
            directory = None if out is None else RunDirectory(out / str(seed))
            federation = federate(config.data, config.seed, small_data)
            runs.append(open_run(config, federation, small_network, directory, resume)[0])
        return runs

    return make


def untimed(run: Run) -> list[Row]:
    return [replace(row, seconds=0.0) for row in run.rows]


def assert_same(found: Run, expected: Run) -> None:
    assert untimed(found) == untimed(expected)
    for name, value in expected.state.params.items():
        assert torch.equal(found.state.params[name], value)


def test_tasks_of_all_runs_are_given_out_at_once_and_what_comes_of_them_goes_where_it_belongs(
    runs_of: Callable[..., list[Run]], small_data: Dataset
) -> None:
    """Places 0 to 2 are the first run's, 3 to 6 the second's."""
    [one], [two], engine = runs_of(1, cohort__size=3), runs_of(2), Noting(small_data)
    step = SharedRound([one, two])
    assert [(task.seed, task.round) for task in step.tasks] == [(1, 1)] * 3 + [(2, 1)] * 4
    assert not step.result(4, ClientResult.failed("it fell over"))
    assert step.result(2, engine.answer(step.tasks[2]))
    assert [list(run.round.results) for run in (one, two)] == [[2], [1]]
    assert [run.round.total.updates for run in (one, two)] == [1, 0]
    assert [step.empty_sum(index).masks is two.round.total.masks for index in (2, 3)] == [False, True]
    part, payload = step.empty_sum(3), engine.answer(step.tasks[3]).payload
    assert payload is not None
    part.add(decode_update(payload, step.tasks[3]))
    step.partial(3, part)
    assert [run.round.total.updates for run in (one, two)] == [1, 1]
    step.failed(6, TrainingError("why"))
    assert {run.config.seed: str(why) for run, why in step.failures.items()} == {2: "why"}


@pytest.mark.parametrize("kind", [Backwards, Summing])
def test_it_does_not_matter_how_an_engine_hands_over_what_came(
    kind: type[Noting], runs_of: Callable[..., list[Run]], small_data: Dataset
) -> None:
    expected, found = runs_of(1, 2), runs_of(1, 2)
    play(expected, Noting(small_data), Silent())
    play(found, kind(small_data), Silent())
    for one, right in zip(found, expected, strict=True):
        assert_same(one, right)
    assert expected[0].rows != expected[1].rows


def test_models_of_all_runs_that_are_due_are_tested_together(
    runs_of: Callable[..., list[Run]], small_data: Dataset
) -> None:
    """Every second round and the last one; the first run has two rounds, the second three."""
    runs, engine, watching = runs_of(1, rounds=2) + runs_of(2), Noting(small_data), Watching()
    assert play(runs, engine, watching)
    assert (engine.given, engine.tests) == ([8, 8, 4], [0, 2, 1])
    assert (engine.worked, engine.working) == (True, False)
    assert watching.begun == [[1, 2]]
    assert watching.rows == [(1, 1), (2, 1), (1, 2), (2, 2), (2, 3)]
    assert [[row.accuracy is not None for row in run.rows] for run in runs] == [[False, True], [False, True, True]]


def test_a_run_that_is_over_is_not_played_again(runs_of: Callable[..., list[Run]], small_data: Dataset) -> None:
    [done], [more] = runs_of(1), runs_of(2)
    play([done], Noting(small_data), Silent())
    engine, watching = Noting(small_data), Watching()
    assert play([done, more], engine, watching)
    assert (engine.given, watching.begun) == ([4, 4, 4], [[2]])
    assert [row.round for row in done.rows] == [1, 2, 3]


def test_a_watcher_that_stops_leaves_checkpoints_of_all_runs(
    runs_of: Callable[..., list[Run]], small_data: Dataset, tmp_path: Path
) -> None:
    where: dict[str, Any] = {"out": tmp_path, "checkpoint_every": 100}
    watching = Watching(last=2)
    assert not play(runs_of(1, 2, **where), Noting(small_data), watching)
    assert watching.rows == [(1, 1), (2, 1), (1, 2), (2, 2)]
    rest, whole = runs_of(1, 2, **where, resume=True), runs_of(1, 2)
    assert [run.state.round for run in rest] == [3, 3]
    for runs in (rest, whole):
        assert play(runs, Noting(small_data), Silent())
    for one, right in zip(rest, whole, strict=True):
        assert_same(one, right)


# A run that cannot go on.


def test_a_run_that_an_engine_cannot_go_on_with_does_not_end_the_other(
    runs_of: Callable[..., list[Run]], small_data: Dataset
) -> None:
    ill, well = runs_of(1, 2)
    watching = Watching()
    with pytest.raises(TrainingError, match=r"^feddst, seed 1: the sums are full$"):
        play([ill, well], Refusing(small_data, seed=1, round=2), watching)
    assert watching.rows == [(1, 1), (2, 1), (2, 2), (2, 3)]
    assert (len(ill.rows), well.stopped_by) == (1, "rounds")
    [alone] = runs_of(2)
    play([alone], Noting(small_data), Silent())
    assert_same(well, alone)


@pytest.mark.parametrize("last", [False, True])
def test_a_run_whose_model_cannot_be_sent_does_not_end_the_other(
    last: bool, runs_of: Callable[..., list[Run]], small_data: Dataset
) -> None:
    """Whether it comes first or last, tasks and results go where they belong."""
    ill, well = runs_of(1, 2)
    weight = {name: torch.full_like(value, 1e30) for name, value in ill.state.params.items() if name == "1.bias"}
    ill.state = replace(ill.state, params={**ill.state.params, **weight})
    runs, engine = ([well, ill] if last else [ill, well]), Noting(small_data)
    with pytest.raises(TrainingError, match=r"^feddst, seed 1: the model cannot be sent in round 1: .*1\.bias"):
        play(runs, engine, Silent())
    assert engine.given == [4, 4, 4]
    assert (ill.rows, well.stopped_by) == ([], "rounds")
    [alone] = runs_of(2)
    play([alone], Noting(small_data), Silent())
    assert_same(well, alone)


def test_a_run_whose_clients_all_fail_does_not_end_the_other(
    runs_of: Callable[..., list[Run]], small_data: Dataset
) -> None:
    """What cannot be used is no reason to end a run; that nothing can be, at the end of its first round, is one."""
    [ill] = runs_of(1, local__lr=1e30)
    [well] = runs_of(2)
    with pytest.raises(TrainingError, match=r"^feddst, seed 1: round 1: 4 of the 4 clients that answered diverged"):
        play([ill, well], Noting(small_data), Silent())
    assert (ill.rows, [row.clients for row in well.rows]) == ([], [4, 4, 4])


def test_a_run_alone_says_why_without_its_name(runs_of: Callable[..., list[Run]], small_data: Dataset) -> None:
    with pytest.raises(TrainingError, match=r"^the sums are full$"):
        play(runs_of(1), Refusing(small_data, seed=1, round=1), Silent())


def test_the_other_run_has_a_checkpoint_when_one_could_not_go_on(
    runs_of: Callable[..., list[Run]], small_data: Dataset, tmp_path: Path
) -> None:
    ill, well = runs_of(1, 2, out=tmp_path)
    with pytest.raises(TrainingError, match="seed 1: the sums are full"):
        play([ill, well], Refusing(small_data, seed=1, round=2), Silent())
    assert (tmp_path / "2" / "summary.json").exists()
    assert not (tmp_path / "1" / "summary.json").exists()
