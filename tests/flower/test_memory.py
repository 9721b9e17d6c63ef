"""What clients keep between rounds: in Flower's context and in files, whole or not at all."""

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from feddst.core import ClientState
from feddst.errors import CheckpointError, FlowerError
from feddst.flower.memory import VERSIONS, ContextStore, FileStore, Memory, Store, partition_of, store_of
from feddst.runtime.tensorfile import pack


def state(value: float) -> ClientState:
    own = {"0.weight": torch.full((2, 3), value), "mask/0.weight": torch.tensor([True, False])}
    return ClientState(own, {"ab mask": torch.tensor([3], dtype=torch.uint8), "ab": torch.full((4,), value).bfloat16()})


def value_in(kept: ClientState) -> float | None:
    return float(kept.tensors["0.weight"][0, 0]) if kept.tensors else None


def context(**node_config: Any) -> Context:
    return Context(1, 2, {name.replace("_", "-"): value for name, value in node_config.items()}, RecordDict(), {})


@pytest.fixture(params=["context", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return ContextStore(context()) if request.param == "context" else FileStore(tmp_path / "deep" / "state", 3)


def test_a_memory_comes_back(store: Store) -> None:
    kept = Memory(b"\x05\xff\x00", {4: state(0.5), 7: state(1.5)})
    store.save("ab12", kept)
    found = store.load("ab12")
    assert found.held == kept.held
    assert list(found.states) == [4, 7]
    for round, one in kept.states.items():
        for group in ("tensors", "feedback"):
            mine, its = getattr(found.states[round], group), getattr(one, group)
            assert mine.keys() == its.keys()
            assert all(torch.equal(value, mine[name]) for name, value in its.items())


def test_there_is_nothing_before_the_first_round(store: Store) -> None:
    assert store.load("ab12") == Memory()
    store.save("ab12", Memory())
    assert store.load("ab12") == Memory()


def test_runs_do_not_share_a_memory(store: Store) -> None:
    store.save("one", Memory(b"1", {1: state(1)}))
    store.save("two", Memory(b"2", {1: state(2)}))
    assert store.load("one").held == b"1"
    assert value_in(store.load("one").before(2)) == 1
    assert store.load("three") == Memory()


def test_clients_do_not_share_a_file(tmp_path: Path) -> None:
    FileStore(tmp_path, 1).save("run", Memory(b"1"))
    assert FileStore(tmp_path, 2).load("run") == Memory()
    assert FileStore(tmp_path, 1).load("run").held == b"1"


def test_a_node_keeps_files_if_it_is_told_where(tmp_path: Path) -> None:
    assert store_of(context(partition_id=3, state_dir=str(tmp_path))) == FileStore(tmp_path, 3)
    assert isinstance(store_of(context(partition_id=3)), ContextStore)
    assert isinstance(store_of(context(partition_id=3, state_dir="")), ContextStore)


@pytest.mark.parametrize("config", [{}, {"partition_id": "1"}, {"partition_id": -1}, {"partition_id": True}])
def test_a_node_must_know_which_client_it_is(config: dict[str, Any]) -> None:
    with pytest.raises(FlowerError, match="must have partition-id"):
        partition_of(context(**config))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 3)
    store.save("run", Memory(b"mask", {1: state(1)}))
    [path] = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:20], b"\xff" * 40, whole + b"x", whole.replace(b"rounds", b"sounds")):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=f"{path.name} is damaged"):
            store.load("run")
    path.write_bytes(whole)
    assert store.load("run").held == b"mask"


def test_a_file_of_other_tensors_is_not_a_memory(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 3)
    store.save("run", Memory())
    [path] = tmp_path.iterdir()
    for metadata in ({}, {"feddst": "{}"}, {"feddst": "[]"}, {"feddst": '{"rounds": [2]}'}, {"feddst": "{"}):
        path.write_bytes(pack({"1/x": torch.ones(2)}, metadata))
        with pytest.raises(CheckpointError, match="is damaged"):
            store.load("run")


def test_a_round_played_again_begins_with_what_the_client_had_before_it() -> None:
    memory = Memory()
    for round in (2, 5, 9):
        memory = memory.after(round, b"", state(round))
    assert value_in(memory.before(10)) == 9
    assert value_in(memory.before(9)) == 5
    again = memory.after(9, b"", state(99))
    assert value_in(again.before(10)) == 99
    assert value_in(again.before(9)) == 5


def test_a_run_that_goes_back_forgets_what_came_later() -> None:
    memory = Memory().after(5, b"", state(5)).after(6, b"", state(6)).after(3, b"", state(3))
    assert list(memory.states) == [3]
    assert memory.before(3) == ClientState()


def test_a_round_without_a_state_leaves_the_one_before() -> None:
    memory = Memory().after(1, b"a", state(1)).after(2, b"b", ClientState())
    assert memory.held == b"b"
    assert value_in(memory.before(3)) == 1


@given(st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=12))
def test_a_client_always_has_what_it_kept_last_before_a_round(moves: list[tuple[int, bool]]) -> None:
    """However often a server is killed in a round, or goes back to the checkpoint before the last."""
    memory, kept = Memory(), dict[int, float]()
    checkpoints = [1]  # by the round that comes next
    for step, (ahead, killed) in enumerate(moves):
        for _ in range(ahead - 1):  # rounds without this client
            checkpoints = [checkpoints[-1], checkpoints[-1] + 1]
        now = checkpoints[-1] if ahead else checkpoints[0]
        before = [kept[r] for r in sorted(kept) if r < now]
        assert value_in(memory.before(now)) == (before[-1] if before else None)
        kept = {r: value for r, value in kept.items() if r < now} | {now: float(step)}
        memory = memory.after(now, b"", state(step))
        assert len(memory.states) <= VERSIONS
        if not killed:
            checkpoints = [now, now + 1]
        elif not ahead:
            checkpoints = [now]
