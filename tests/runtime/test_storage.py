"""The run directory: atomic, safe to resume from, and never overwritten by another run."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from feddst.core import ClientState, InitialModel, ServerState
from feddst.data import Federation
from feddst.errors import CheckpointError, DamageError
from feddst.options import updated
from feddst.runtime import Row, RunConfig
from feddst.runtime.details import Detail
from feddst.runtime.storage import Checkpoint, RunDirectory, identity_of, write_atomically
from feddst.runtime.tensorfile import pack_sealed, unpack, unpack_sealed

ROW = Row(1, None, None, None, None, None, 0.5, 0.2, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0)
STATE = ServerState(
    round=5,
    seed=9,
    params={"w": torch.randn(3, 2).t(), "b": torch.zeros(1)},
    buffers={"seen": torch.tensor(4)},
    masks={"w": torch.tensor([[True, False, True], [False, False, True]])},
    budgets={"w": 3},
    extra={"v": torch.ones(2)},
)
LEDGER = {"upload_bits": 2**70, "unsettled": [[3, 4]]}
CLIENTS = {
    17: ClientState({"mask": torch.tensor([True])}),
    3: ClientState({"a/b": torch.ones(1)}, {"c/d": torch.ones(2, dtype=torch.bfloat16)}),
    5: ClientState(feedback={"c/d": torch.ones(2, dtype=torch.bfloat16)}),
}


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path / "run")
    directory.create(RunConfig())
    return directory


def test_a_checkpoint_gives_back_what_went_in(directory: RunDirectory) -> None:
    assert directory.load("me") is None
    directory.save(Checkpoint(STATE, CLIENTS, LEDGER), "me")
    loaded = directory.load("me")
    assert loaded is not None
    assert (loaded.state.round, loaded.state.seed, loaded.state.budgets) == (5, 9, {"w": 3})
    assert loaded.ledger == LEDGER
    for group in ("params", "buffers", "masks", "extra"):
        before, after = getattr(STATE, group), getattr(loaded.state, group)
        assert before.keys() == after.keys()
        assert all(
            torch.equal(before[name], after[name]) and before[name].dtype == after[name].dtype for name in before
        )
    assert {c: set(kept.tensors) for c, kept in loaded.clients.items()} == {17: {"mask"}, 3: {"a/b"}, 5: set()}
    assert {c: set(kept.feedback) for c, kept in loaded.clients.items()} == {17: set(), 3: {"c/d"}, 5: {"c/d"}}
    assert torch.equal(loaded.clients[3].feedback["c/d"], CLIENTS[3].feedback["c/d"])


def test_a_bitmap_that_many_clients_keep_is_written_once(directory: RunDirectory) -> None:
    bitmaps = [torch.arange(90, dtype=torch.uint8), torch.arange(90, dtype=torch.uint8) + 1]
    rows = [torch.full((2,), float(client), dtype=torch.bfloat16) for client in range(6)]
    clients = {
        client: ClientState(feedback={"row": row, "row mask": bitmaps[client % 2].clone()})
        for client, row in enumerate(rows)
    }
    directory.save(Checkpoint(STATE, clients, LEDGER), "me")
    tensors, _ = unpack(directory.checkpoint.read_bytes())
    assert [len(value) for value in tensors.values() if value.shape == (90,)] == [90, 90]
    loaded = directory.load("me")
    assert loaded is not None
    for client, kept in loaded.clients.items():
        assert list(kept.feedback) == ["row", "row mask"]
        assert torch.equal(kept.feedback["row"], rows[client])
        assert torch.equal(kept.feedback["row mask"], bitmaps[client % 2])
        assert kept.feedback["row mask"] is loaded.clients[client % 2].feedback["row mask"]


def test_another_models_checkpoint_is_refused(directory: RunDirectory) -> None:
    directory.save(Checkpoint(STATE, {}, LEDGER), "me")
    with pytest.raises(CheckpointError, match="another model or other data"):
        directory.load("you")


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_a_damaged_checkpoint_is_refused(directory: RunDirectory, damage: bytes | None) -> None:
    directory.save(Checkpoint(STATE, {}, LEDGER), "me")
    whole = directory.checkpoint.read_bytes()
    directory.checkpoint.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    with pytest.raises(CheckpointError, match="is damaged"):
        directory.load("me")


def test_a_foreign_safetensors_file_is_refused(directory: RunDirectory) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.ones(1)}, directory.checkpoint)
    with pytest.raises(CheckpointError, match="is damaged"):
        directory.load("me")
    save_file({"x": torch.ones(1)}, directory.checkpoint, {"feddst": json.dumps({"format": 99})})
    with pytest.raises(CheckpointError, match="format 99"):
        directory.load("me")


def test_a_directory_with_something_in_it_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="is not empty"):
        RunDirectory(tmp_path).create(RunConfig())
    with pytest.raises(CheckpointError, match="holds no run"):
        RunDirectory(tmp_path).stored_config()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_run_goes_on_only_with_its_own_config(
    directory: RunDirectory, small_config: Callable[..., RunConfig]
) -> None:
    with pytest.raises(
        CheckpointError, match=r"was begun with another config: eval_every was 5, now 2; .*local\.epochs"
    ):
        directory.refuse_other(small_config())
    assert directory.stored_config() == RunConfig()


def test_a_config_without_an_engine_is_from_before_there_were_two(directory: RunDirectory) -> None:
    heading, *lines = directory.config.read_text().splitlines()
    assert heading.startswith("# feddst run, check ")
    directory.config.write_text(
        "\n".join(["# feddst run", *(line for line in lines if "engine.kind" not in line)]) + "\n"
    )
    assert directory.stored_config() == updated(RunConfig(), {"engine.kind": "reference"})
    with pytest.raises(CheckpointError, match=r"engine\.kind was 'reference', now 'native'"):
        directory.refuse_other(RunConfig())


def test_a_damaged_name_is_refused(directory: RunDirectory) -> None:
    assert directory.stored_name() == ""
    directory.write_name("ab12")
    assert directory.stored_name() == "ab12"
    written = directory.name.read_bytes()
    for damaged in (written.replace(b"ab12", b"ab13"), b"", b"[]", b'{"name": 3}', written[:-20]):
        directory.name.write_bytes(damaged)
        with pytest.raises(DamageError, match=r"name\.json is damaged"):
            directory.stored_name()


def test_what_a_killed_write_left_behind_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.toml.partial").write_text("rou")
    directory = RunDirectory(tmp_path)
    directory.create(RunConfig())
    assert directory.stored_config() == RunConfig()
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_a_full_disk_is_one_line(directory: RunDirectory) -> None:
    directory.metrics.symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"cannot write .*metrics\.jsonl: No space left on device"):
        directory.append(ROW)
    directory.details_file.symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"cannot write .*details\.jsonl: No space left on device"):
        directory.append(ROW, Detail(round=1))


def test_only_a_checkpoint_waits_for_the_disk_and_first_for_the_rows(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []
    usual = os.fsync

    def fsync(descriptor: int) -> None:
        waited.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    directory.append(ROW)
    assert waited == []
    assert directory.rows() == [ROW]
    directory.save(Checkpoint(STATE, {}, LEDGER), "me")
    assert waited == ["metrics.jsonl", "checkpoint.safetensors.partial", "run"]
    waited.clear()
    directory.append(replace(ROW, round=2), Detail(round=2, clients=(1,)))
    assert waited == []
    assert directory.details() == [Detail(round=2, clients=(1,))]
    directory.save(Checkpoint(STATE, {}, LEDGER), "me")
    assert waited == ["details.jsonl", "metrics.jsonl", "checkpoint.safetensors.partial", "run"]


def test_what_follows_the_last_round_asked_for_may_be_damaged(directory: RunDirectory) -> None:
    rows = [replace(ROW, round=number) for number in (1, 2, 3)]
    for row in rows:
        directory.append(row)
    with directory.metrics.open("ab") as file:
        file.write(bytes(9) + b"\xff\n{}\n")
    assert directory.rows(3) == rows
    assert directory.rows(2) == rows[:2]
    assert directory.rows(0) == []
    with pytest.raises(CheckpointError, match="line 4, is damaged"):
        directory.rows()


@pytest.mark.parametrize("missing", ["round", "ledger", "bitmaps", "holders"])
def test_a_checkpoint_that_lacks_something_is_refused(directory: RunDirectory, missing: str) -> None:
    directory.save(Checkpoint(STATE, {}, LEDGER), "me")
    tensors, text, _ = unpack_sealed(directory.checkpoint.read_bytes())
    about = {name: value for name, value in json.loads(text).items() if name != missing}
    directory.checkpoint.write_bytes(pack_sealed(tensors, json.dumps(about)))
    with pytest.raises(CheckpointError, match=f"is damaged: '{missing}'"):
        directory.load("me")


def test_tensors_that_share_memory_are_saved(directory: RunDirectory) -> None:
    shared = torch.ones(2)
    directory.save(Checkpoint(STATE, {1: ClientState({"a": shared}), 2: ClientState({"a": shared})}, LEDGER), "me")
    loaded = directory.load("me")
    assert loaded is not None
    assert torch.equal(loaded.clients[2].tensors["a"], shared)


def test_identity_sees_shapes_names_and_data_but_not_weights() -> None:
    def model(size: int, name: str = "w") -> InitialModel:
        return InitialModel(params={name: torch.randn(size)}, layers=())

    def data(pixel: float, first: int = 1) -> Federation:
        images, labels = torch.full((4, 3), pixel), torch.tensor([0, 1, 0, 1])
        parts = [(images[:first], labels[:first]), (images[first:], labels[first:])]
        return Federation.from_clients(train=parts, test=(images, labels), client_test=[np.arange(4)] * 2)

    same = identity_of(model(1), data(0))
    assert identity_of(model(1), data(0)) == same
    others = [identity_of(model(2), data(0)), identity_of(model(1), data(1)), identity_of(model(1, "v"), data(0))]
    assert len({same, *others, identity_of(model(1), data(0, first=2))}) == 5


def test_atomic_writing_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_atomically(target, b"old")
    (tmp_path / "file.partial").mkdir()
    with pytest.raises(CheckpointError, match="cannot write"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
