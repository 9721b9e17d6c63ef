import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from feddst.logs import Log, Several
from feddst.logs.log import Ending
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run

Play = Callable[..., Any]


@dataclass
class Notebook:
    """A book in memory whose writes fail while `broken`."""

    first: int = 0
    broken: bool = False
    attempts: int = 0
    rounds: list[int] = field(default_factory=list)
    ending: Ending | None = None

    def write(self, rows: Sequence[Row]) -> None:
        self.attempts += 1
        if self.broken:
            raise OSError("no space left")
        self.rounds += [row.round for row in rows]

    def close(self, ending: Ending) -> None:
        self.ending = ending


class Memory(Log):
    name = "memory"

    def __init__(self, book: Notebook | None) -> None:
        super().__init__()
        self._book = book

    def check(self) -> None:
        pass

    def place(self, out: Path) -> str:
        return "here"

    def begin(self, run: Run) -> Notebook:
        if self._book is None:
            raise OSError("cannot begin")
        return self._book


class After(Silent):
    """Does something after a round."""

    def __init__(self, round: int, action: Callable[[], object]) -> None:
        self._round = round
        self._action = action
        self._over = False

    def row(self, run: Run, row: Row) -> None:
        self._over = row.round >= self._round
        if row.round == self._round:
            self._action()


class StopAfter(After):
    def stop(self) -> bool:
        return self._over


def interrupted() -> None:
    raise KeyboardInterrupt


def broken() -> None:
    raise RuntimeError("broken")


def test_every_round_is_written_and_the_end_is_noted(play: Play) -> None:
    book = Notebook()
    play(Memory(book))
    assert (book.rounds, book.ending, book.attempts) == ([1, 2, 3, 4], "finished", 4)


def test_a_log_that_cannot_be_written_warns_once_and_catches_up_at_the_end(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    book = Notebook(broken=True)
    result = play(Several(Memory(book), After(3, lambda: setattr(book, "broken", False))))
    assert result.finished
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    expected = "the memory log of feddst, seed 0 cannot be written: no space left; the run goes on"
    assert warning.getMessage() == expected
    assert (book.attempts, book.rounds, book.ending) == (2, [1, 2, 3, 4], "finished")


def test_a_log_that_stays_broken_says_nothing_more(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    book = Notebook(broken=True)
    assert play(Memory(book)).finished
    assert (len(caplog.records), book.ending) == (1, None)


def test_a_log_that_cannot_begin_leaves_the_run_alone(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    assert play(Memory(None)).finished
    assert [record.getMessage() for record in caplog.records] == [
        "the memory log of feddst, seed 0 cannot be written: cannot begin; the run goes on"
    ]


def test_rounds_that_a_book_has_are_not_written_again(play: Play) -> None:
    book = Notebook(first=3)
    play(Memory(book))
    assert book.rounds == [3, 4]


def test_a_resumed_run_brings_the_rounds_that_were_not_logged(play: Play) -> None:
    play(None, rounds=2)
    book = Notebook()
    play(Memory(book), resume=True)
    assert book.rounds == [1, 2, 3, 4]


def test_rows_wait_until_they_may_be_written(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "every", 1000.0)
    book = Notebook()
    play(Memory(book))
    assert (book.attempts, book.rounds) == (2, [1, 2, 3, 4])  # round 1 at once, the others at the end


@pytest.mark.parametrize(
    ("action", "error", "ending"), [(interrupted, KeyboardInterrupt, "stopped"), (broken, RuntimeError, "failed")]
)
def test_a_context_knows_how_a_run_was_ended(
    play: Play, action: Callable[[], None], error: type[BaseException], ending: Ending
) -> None:
    book = Notebook()
    with pytest.raises(error), Several(Memory(book), After(2, action)) as watcher:
        play(watcher)
    assert (book.rounds, book.ending) == ([1, 2], ending)


def test_a_run_that_a_watcher_stopped_is_stopped(play: Play) -> None:
    book = Notebook()
    with Several(Memory(book), StopAfter(2, lambda: None)) as watcher:
        assert not play(watcher).finished
    assert (book.rounds, book.ending) == ([1, 2], "stopped")


def test_every_watcher_is_asked_whether_to_stop() -> None:
    asked: list[str] = []

    class Asked(Silent):
        def __init__(self, name: str) -> None:
            self._name = name

        def stop(self) -> bool:
            asked.append(self._name)
            return self._name == "a"

    assert Several(Asked("a"), Asked("b")).stop()
    assert asked == ["a", "b"]
    assert not Several().stop()
