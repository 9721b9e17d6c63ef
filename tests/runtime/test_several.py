"""Several watchers as one: how `callbacks` are called, checked, and named where they fail."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

import feddst
from feddst.data import Dataset
from feddst.errors import OptionError
from feddst.logs import Lines, Several, TensorBoard
from feddst.runtime import Row, RunConfig, run
from feddst.runtime.loop import Silent
from feddst.runtime.run import Run

Configure = Callable[..., RunConfig]


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 4))


class Noted(feddst.Callback):
    """Notes what it hears."""

    def __init__(self, heard: list[str], stop_after: int = 99) -> None:
        self.heard = heard
        self.stop_after = stop_after

    def on_run_begin(self, run: Run) -> None:
        self.heard.append(f"begin {len(run.rows)}")

    def on_evaluation(self, run: Run, row: Row) -> None:
        self.heard.append(f"evaluation {row.round}")

    def on_round_end(self, run: Run, row: Row) -> None:
        self.heard.append(f"round {row.round}")
        self.stop_training = row.round >= self.stop_after

    def on_run_end(self, run: Run) -> None:
        self.heard.append(f"end {run.stopped_by}")


class Broken(feddst.Callback):
    def on_round_end(self, run: Run, row: Row) -> None:
        if row.round == 2:
            raise ZeroDivisionError("by 0")


def test_callbacks_hear_of_each_round_in_order(
    small_config: Configure, small_data: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[str] = []
    result = run(small_config(rounds=3), model=network, data=small_data, callbacks=[Noted(heard)])
    assert result.finished
    assert heard == ["begin 0", "round 1", "evaluation 2", "round 2", "evaluation 3", "round 3", "end rounds"]
    assert len(capsys.readouterr().err.splitlines()) == 2  # what is shown without a watcher is shown all the same


def test_a_callback_ends_a_run_which_can_be_resumed(
    small_config: Configure, small_data: Dataset, tmp_path: Any
) -> None:
    heard: list[str] = []
    here: dict[str, Any] = {"model": network, "data": small_data, "out": tmp_path / "a", "watcher": Silent()}
    part = run(small_config(rounds=3), **here, callbacks=[Noted(heard, stop_after=1), Noted(heard)])
    assert not part.finished
    assert heard == ["begin 0", "begin 0", "round 1", "round 1", "end ", "end "]
    heard.clear()
    again = Noted(heard, stop_after=1)
    again.stop_training = True  # of another run: it is forgotten
    again.stop_after = 99
    assert run(small_config(rounds=3), **here, callbacks=[again], resume=True).finished
    assert heard == ["begin 1", "evaluation 2", "round 2", "evaluation 3", "round 3", "end rounds"]


def test_an_exception_names_its_callback_and_the_others_hear_of_the_end(
    small_config: Configure, small_data: Dataset
) -> None:
    heard: list[str] = []
    with pytest.raises(ZeroDivisionError, match="by 0") as caught:
        run(small_config(), model=network, data=small_data, watcher=Silent(), callbacks=[Noted(heard), Broken()])
    assert caught.value.__notes__ == ["raised by the callback Broken, after round 2 of feddst, seed 0"]
    assert heard[-1] == "end "


def test_a_log_as_a_callback_needs_no_context(small_config: Configure, small_data: Dataset, tmp_path: Any) -> None:
    run(small_config(rounds=1), model=network, data=small_data, watcher=Silent(), callbacks=[TensorBoard(tmp_path)])
    assert len(list(tmp_path.glob("feddst-seed0/events.out.tfevents.*"))) == 1


def test_several_with_nobody_shows_nothing(
    small_config: Configure, small_data: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small_config(rounds=2), model=network, data=small_data, watcher=Several())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (feddst.EarlyStopping(), "callbacks must be a list, such as .*, got EarlyStopping"),
        (feddst.EarlyStopping, "callbacks must be a list, such as .*, got EarlyStopping"),
        ([feddst.EarlyStopping], "callbacks must hold objects, got the class EarlyStopping: call it first"),
        ([print], r"inherit from feddst\.Callback, or have started, row and stop, got builtin_function_or_method"),
    ],
    ids=["object", "class", "class in a list", "function"],
)
def test_what_is_no_callback_is_refused(callbacks: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        run(callbacks=callbacks)
    with pytest.raises(OptionError, match=message):
        feddst.compare(out="nowhere", callbacks=callbacks)


def test_lines_are_watchers_too(
    small_config: Configure, small_data: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small_config(rounds=2), model=network, data=small_data, watcher=Silent(), callbacks=[Lines()])
    assert "round 2: accuracy" in capsys.readouterr().err
