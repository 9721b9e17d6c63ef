import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from feddst.errors import OptionError
from feddst.logs import Several, TensorBoard
from feddst.logs.scalars import GROUPS
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import SCORES, Row
from feddst.runtime.run import Run

Play = Callable[..., Any]
Series = dict[str, list[tuple[int, float]]]


def read(folder: Path) -> Series:
    """(step, value) of every scalar, by its name without the heading."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    tags = events.Tags()["scalars"]
    return {tag.split("/")[1]: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}


def as_float32(series: Series) -> Series:
    """What TensorBoard can hold of the numbers that it is given."""
    shown = {name for names in GROUPS.values() for name in names} | {f"accuracy{kind}" for kind in SCORES}
    return {
        name: [(step, float(np.float32(value))) for step, value in points]
        for name, points in series.items()
        if name in shown
    }


class TakesAway(Silent):
    """Puts a file where a folder was, after round 2."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def row(self, run: Run, row: Row) -> None:
        if row.round == 2:
            shutil.rmtree(self._folder)
            self._folder.write_text("in the way")


def test_scalars_are_those_of_the_metrics(play: Play, told: Callable[..., Series], tmp_path: Path) -> None:
    play(TensorBoard())
    found = read(tmp_path / "run/tensorboard")
    assert found == as_float32(told())
    assert [step for step, _ in found["accuracy"]] == [2, 4]
    assert [step for step, _ in found["seconds"]] == [1, 2, 3, 4]
    assert {"accuracy_worst", "loss", "train_loss", "density", "entered", "upload_mask_bytes", "flops_sparse"} < set(
        found
    )


def test_the_config_is_there_as_text(play: Play, tmp_path: Path) -> None:
    play(TensorBoard())
    events = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    [config] = events.Tensors("config")
    text = config.tensor_proto.string_val[0].decode()
    assert '    method = "feddst"\n' in text
    assert "    readjust.alpha = 0.3\n" in text


def test_a_run_that_goes_on_has_every_step_once(play: Play, told: Callable[..., Series], tmp_path: Path) -> None:
    play(TensorBoard(), rounds=3)
    assert [step for step, _ in read(tmp_path / "run/tensorboard")["accuracy"]] == [2, 3]
    play(TensorBoard(), rounds=5, resume=True)
    found = read(tmp_path / "run/tensorboard")
    assert found == as_float32(told())
    assert [step for step, _ in found["accuracy"]] == [2, 4, 5]  # 3 was evaluated only because the run ended there


def test_rounds_after_the_last_checkpoint_are_replaced(play: Play, told: Callable[..., Series], tmp_path: Path) -> None:
    class Dies(Silent):
        def row(self, run: Run, row: Row) -> None:
            if row.round == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(Several(TensorBoard(), Dies()), checkpoint_every=2)
    assert [step for step, _ in read(tmp_path / "run/tensorboard")["seconds"]] == [1, 2, 3]
    play(TensorBoard(), checkpoint_every=2, resume=True)
    assert read(tmp_path / "run/tensorboard") == as_float32(told())


def test_rounds_that_were_not_logged_come_later(play: Play, told: Callable[..., Series], tmp_path: Path) -> None:
    play(TensorBoard(), rounds=1)
    play(None, rounds=2, resume=True)
    play(TensorBoard(), rounds=3, resume=True)
    assert read(tmp_path / "run/tensorboard") == as_float32(told())


def test_the_run_is_the_same_with_and_without(play: Play, tmp_path: Path) -> None:
    play(None, "without")
    play(TensorBoard(), "with")
    for file in ("checkpoint.safetensors", "config.toml"):
        assert (tmp_path / "with" / file).read_bytes() == (tmp_path / "without" / file).read_bytes()


def test_a_folder_that_disappears_is_one_warning(play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = play(Several(TakesAway(tmp_path / "run/tensorboard"), TensorBoard()))
    assert result.finished
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "the tensorboard log of feddst, seed 0 cannot be written" in warning.getMessage()


def test_what_was_written_by_half_is_taken_back(
    play: Play, told: Callable[..., Series], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, full = Path.open, False

    def opened(path: Path, mode: str = "r", **how: Any) -> Any:
        file = usual(path, mode, **how)
        if full and "tfevents" in path.name:
            file.write(b"torn")
            file.close()
            raise OSError("no space left")
        return file

    class Full(Silent):
        def row(self, run: Run, row: Row) -> None:
            nonlocal full
            full = row.round == 2

    monkeypatch.setattr(Path, "open", opened)
    play(Several(Full(), TensorBoard()))
    assert read(tmp_path / "run/tensorboard") == as_float32(told())


def test_a_directory_of_ones_own_has_a_folder_for_each_run(play: Play, tmp_path: Path) -> None:
    own = tmp_path / "events"
    play(TensorBoard(own), "a")
    play(TensorBoard(own), "b")
    shutil.rmtree(tmp_path / "a")
    play(TensorBoard(own), "a")
    assert sorted(path.name for path in own.iterdir()) == ["a", "a-2", "b"]
    assert not (tmp_path / "a/tensorboard").exists()


def test_runs_of_one_name_go_on_each_in_its_own_folder(play: Play, told: Callable[..., Series], tmp_path: Path) -> None:
    own = tmp_path / "events"
    for name in ("x/run", "y/run"):
        play(TensorBoard(own), name, rounds=2)
    for name in ("y/run", "x/run"):
        play(TensorBoard(own), name, rounds=3, resume=True)
    assert read(own / "run") == as_float32(told("x/run"))
    assert read(own / "run-2") == as_float32(told("y/run"))
    play(None, "z/run", rounds=1)
    play(TensorBoard(own), "z/run", rounds=2, resume=True)  # has never been logged there
    assert read(own / "run-3") == as_float32(told("z/run"))
    (tmp_path / "z/run/tensorboard.json").write_text("[]")
    play(TensorBoard(own), "z/run", rounds=3, resume=True)
    assert sorted(path.name for path in own.iterdir()) == ["run", "run-2", "run-3", "run-4"]


def test_a_run_without_a_directory_needs_one(play: Play) -> None:
    with pytest.raises(OptionError, match="TensorBoard needs a directory"):
        play(TensorBoard(), None)


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feddst.logs.tensorboard.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'feddst\[tensorboard\]'"):
        TensorBoard().check()
