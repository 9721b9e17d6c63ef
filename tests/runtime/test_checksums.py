"""What was written and is no longer so is refused, or made again: never believed. So is what was never written."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from feddst.data import Dataset
from feddst.errors import DamageError
from feddst.runtime import RunConfig, run
from feddst.runtime.storage import RunDirectory

from .conftest import small_network
from .test_details import StopAfter

Configure = Callable[..., RunConfig]
Go = Callable[..., RunDirectory]


class KilledError(BaseException):
    """Nothing that a program could catch by mistake."""


@pytest.fixture
def script(script_named: Callable[[str], ModuleType]) -> ModuleType:
    return script_named("damage_and_resume")


@pytest.fixture
def go(tmp_path: Path, small_config: Configure, small_data: Dataset) -> Go:
    """Plays a small run in a directory, or goes on with it, until a round."""

    def play(name: str, until: int = 6, **others: Any) -> RunDirectory:
        options = {"cohort__size": 2, "local__epochs": 1, "local__batch": 12}
        config = small_config(**options, wire__values="q2", wire__feedback=True)
        path, watcher = tmp_path / name, StopAfter(until)
        run(config, model=small_network, data=small_data, out=path, watcher=watcher, **others)
        return RunDirectory(path)

    return play


def test_no_random_damage_is_believed(
    tmp_path: Path, script: ModuleType, small_config: Configure, small_data: Dataset
) -> None:
    config = small_config(cohort__size=2, local__epochs=1, local__batch=12)
    cases = script.damage_and_resume(6, tmp_path, config, seed=0, model=small_network, data=small_data)
    assert [case for case in cases if case.outcome == "WRONG"] == []
    assert {case.file for case in cases if case.outcome == "refused"} >= {
        "config.toml",
        "details.jsonl",
        "metrics.jsonl",
        "summary.json",
    }
    assert {case.file for case in cases if case.outcome == "same"} >= {
        "checkpoint.safetensors",
        "checkpoint-before.safetensors",
        "details.jsonl",
        "metrics.jsonl",
    }
    for case in cases:
        if case.outcome == "refused":
            assert f"/run/{case.file}" in case.error
            assert any(way in case.error for way in ("feddst run --config", "delete it to", "Look through it")), case


def test_each_single_byte_of_a_line_matters(go: Go) -> None:
    """The digest of a line covers the lines before it: one cannot be changed, taken out or moved."""
    directory = go("run", until=3)
    whole = directory.metrics.read_bytes()
    rows = directory.rows()
    lines = whole.splitlines(keepends=True)
    for other in (lines[1:], lines[::-1], [lines[0], lines[2]], [*lines, lines[-1]]):
        directory.metrics.write_bytes(b"".join(other))
        with pytest.raises(DamageError, match=r"metrics\.jsonl, line \d, is damaged"):
            directory.rows()
    for place in range(0, len(lines[0]) + len(lines[1]), 3):
        directory.metrics.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamageError, match=r"metrics\.jsonl, line \d, is damaged"):
            directory.rows()
    directory.metrics.write_bytes(whole)
    assert directory.rows() == rows


def test_a_finished_run_has_all_its_rows(go: Go) -> None:
    directory = go("run")
    lines = directory.metrics.read_bytes().splitlines(keepends=True)
    for rest in (lines[:-1], []):
        directory.metrics.write_bytes(b"".join(rest))
        with pytest.raises(DamageError, match=r"metrics\.jsonl is damaged: it does not end with .* last round, 6"):
            directory.rows()


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    go: Go, script: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    whole, broken = go("whole"), go("run", until=5)
    broken.checkpoint.write_bytes(broken.checkpoint.read_bytes()[:-1])
    caplog.clear()
    go("run", resume=True)
    (warning,) = [record.getMessage() for record in caplog.records if "checkpoint" in record.getMessage()]
    assert warning.startswith(f"{broken.checkpoint} is damaged: ")
    assert warning.endswith("; going on from the checkpoint before it")
    assert script.contents(broken.path) == script.contents(whole.path)


def test_two_damaged_checkpoints_end_a_run_with_the_way_back(go: Go) -> None:
    directory = go("run", until=5)
    for path in directory.checkpoints():
        path.write_bytes(path.read_bytes()[1:])
    before = {path: path.read_bytes() for path in directory.path.iterdir()}
    with pytest.raises(DamageError, match=r"checkpoint\.safetensors is damaged: .*; the same run can be made again in"):
        go("run", resume=True)
    assert {path: path.read_bytes() for path in directory.path.iterdir()} == before


def test_a_run_from_before_there_were_checksums_goes_on_with_one_warning(
    go: Go, script: ModuleType, unseal_run: Callable[[Path], RunDirectory], caplog: pytest.LogCaptureFixture
) -> None:
    whole, old = go("whole"), unseal_run(go("run", until=3).path)
    assert b"check" not in old.metrics.read_bytes() + old.details_file.read_bytes()
    caplog.clear()
    go("run", resume=True)
    told = [record.getMessage() for record in caplog.records if "checksums" in record.getMessage()]
    assert told == [f"{old.path} was begun before there were checksums: damage to it cannot be seen"]
    assert script.contents(old.path) == script.contents(whole.path)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_run_killed_at_any_step_of_writing_ends_the_same(
    step: str, done: bool, tmp_path: Path, go: Go, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies at its first such step, and in another directory at its second, and so on; then it is resumed."""
    whole, usual = script.contents(go("whole").path), getattr(os, step)
    for last in count(1):
        steps = count(1)

        def deadly(*args: Any, last: int = last, steps: Iterator[int] = steps) -> None:
            dies = next(steps) == last
            if not dies or done:
                usual(*args)
            if dies:
                raise KilledError

        with monkeypatch.context() as patched:
            patched.setattr(os, step, deadly)
            try:
                go(str(last))
                break
            except KilledError:
                pass
        go(str(last), resume=(tmp_path / str(last) / "config.toml").exists())
        assert script.contents(tmp_path / str(last)) == whole
    assert last > 8
