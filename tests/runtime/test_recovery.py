"""Rounds that come to nothing: what one client that diverges costs, and what most of them do."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from feddst.data import Dataset, Federation, federate
from feddst.engines import ReferenceEngine, Sink
from feddst.errors import TrainingError
from feddst.models import make_module
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent, play
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.session import open_run
from feddst.runtime.storage import RunDirectory
from feddst.wire import ClientResult, ClientTask
from feddst.wire.header import read_header

from .conftest import small_network

Configure = Callable[..., RunConfig]


class Diverging(ReferenceEngine):
    """An engine in which so many of a round's clients diverge, or fail in another way."""

    def __init__(self, federation: Federation, failing: dict[int, int], *, diverged: bool = True) -> None:
        super().__init__(make_module(small_network, 0), federation.dataset, torch.device("cpu"))
        self._failing, self._diverged = failing, diverged

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        for index, task in enumerate(tasks):
            round = read_header(memoryview(task.message.payload))[0].round
            if index < self._failing.get(round, 0):
                sink.result(index, ClientResult.failed(f"client {task.client} had bad luck", diverged=self._diverged))
            else:
                sink.result(index, self.answer(task))


class Watching(Silent):
    """Remembers the model after each round, and stops after one of them."""

    def __init__(self, last: int = 0) -> None:
        self.models: dict[int, dict[str, Tensor]] = {}
        self._last, self._seen = last, 0

    def row(self, run: Run, row: Row) -> None:
        self.models[row.round], self._seen = dict(run.state.params), row.round

    def stop(self) -> bool:
        return self._seen == self._last


Play = Callable[..., tuple[Run, Watching]]


@pytest.fixture
def play_with(small_config: Configure, small_data: Dataset, tmp_path: Path) -> Play:
    """Plays a run in which so many clients of some rounds fail."""

    def played(
        failing: dict[int, int], *, untrusted: bool = False, diverged: bool = True, stop: int = 0, resume: bool = False
    ) -> tuple[Run, Watching]:
        config = small_config()
        federation = federate(config.data, config.seed, small_data)
        directory = RunDirectory(tmp_path / "run")
        run, _ = open_run(
            config, federation, make_module(small_network, config.seed), directory, resume, untrusted=untrusted, spare=0
        )
        watching = Watching(stop)
        play([run], Diverging(federation, failing, diverged=diverged), watching)
        return run, watching

    return played


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, two[name]) for name, value in one.items())


def counts(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return [(row.clients, row.refused) for row in rows]


def test_one_client_that_diverges_is_left_out_and_named(play_with: Play, caplog: pytest.LogCaptureFixture) -> None:
    run, _ = play_with({3: 1})
    assert counts(run.rows) == [(4, 0), (4, 0), (3, 1), (4, 0), (4, 0), (4, 0)]
    assert run.stopped_by == "rounds"
    assert "had bad luck" in caplog.text
    assert "the model" not in caplog.text


def test_half_of_the_clients_are_not_most_of_them(play_with: Play) -> None:
    run, watching = play_with({3: 2})
    assert counts(run.rows)[2] == (2, 2)
    assert not same(watching.models[3], watching.models[2])


def test_a_model_that_most_clients_cannot_train_is_taken_back(
    play_with: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """What round 3 was sent is what round 2 made. Round 2 was sent what round 1 made, and trained it: back to that."""
    run, watching = play_with({3: 3})
    assert same(watching.models[3], watching.models[1])
    assert not same(watching.models[3], watching.models[2])
    assert not same(watching.models[4], watching.models[3])
    assert "round 3: 3 of the 4 clients that answered diverged: the model is again that of round 2" in caplog.text
    # The round does not count: there is one more.
    assert counts(run.rows) == [(4, 0), (4, 0), (0, 3), *4 * [(4, 0)]]
    assert run.state.round == 8


def test_failures_of_other_kinds_leave_the_model_as_it_is(play_with: Play, caplog: pytest.LogCaptureFixture) -> None:
    _, watching = play_with({3: 4}, diverged=False)
    assert same(watching.models[3], watching.models[2])
    assert "round 3 has 0 updates, fewer than min_clients (1): the model stays as it is" in caplog.text


@pytest.mark.parametrize("diverged", [True, False])
def test_three_rounds_in_a_row_that_come_to_nothing_end_the_run_with_the_clients_reasons(
    diverged: bool, play_with: Play, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=r"round 5.*the 2 rounds before it; client \d had bad luck; .*1 more"):
        play_with({3: 4, 4: 4, 5: 4}, diverged=diverged)
    assert not (tmp_path / "run" / "summary.json").exists()
    run, _ = play_with({}, resume=True)
    assert (run.stopped_by, run.state.round) == ("rounds", 9)  # from the checkpoint after round 4


def test_rounds_that_come_to_nothing_now_and_then_do_not_end_a_run(play_with: Play) -> None:
    run, _ = play_with({2: 4, 3: 4, 5: 4, 6: 4})
    assert [row.clients for row in run.rows] == [4, 0, 0, 4, 0, 0, 4, 4, 4, 4]
    assert run.stopped_by == "rounds"


def test_a_first_round_of_divergence_ends_a_run_at_once(play_with: Play) -> None:
    with pytest.raises(TrainingError, match=r"^round 1: 4 of the 4 clients that answered diverged: the round came to"):
        play_with({1: 4})


def test_untrusted_clients_may_do_better_the_next_time(play_with: Play) -> None:
    run, _ = play_with({1: 4, 2: 4}, untrusted=True)
    assert [row.clients for row in run.rows] == [0, 0, *6 * [4]]


def test_the_third_time_ends_a_run_of_untrusted_clients_too(play_with: Play) -> None:
    with pytest.raises(TrainingError, match="as did the 2 rounds before it"):
        play_with({1: 4, 2: 4, 3: 4}, untrusted=True)


@pytest.mark.parametrize("stop", [2, 3, 4, 5])
def test_a_resumed_run_takes_the_same_model_back(stop: int, play_with: Play, tmp_path: Path) -> None:
    """Stopped anywhere between rounds and what they are taken back to: the last checkpoints are the same bytes."""
    failing = {3: 3, 4: 3, 6: 3}
    play_with(failing)
    whole = tmp_path / "run"
    whole.rename(tmp_path / "whole")
    play_with(failing, stop=stop)
    play_with(failing, resume=True)
    names = ["checkpoint.safetensors", "checkpoint-before.safetensors"]
    first, second = ([(tmp_path / which / name).read_bytes() for name in names] for which in ("whole", "run"))
    assert first == second
