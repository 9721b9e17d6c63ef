"""A server that is stopped or killed goes on where it was, with nodes that have been restarted as well."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message
from torch import Tensor

from feddst.data import Federation
from feddst.errors import CheckpointError, OptionError, TrainingError
from feddst.flower import FlowerConfig, Strategy
from feddst.flower.memory import FileStore
from feddst.flower.messages import TRAIN, read_task_message
from feddst.runtime import RunConfig
from feddst.runtime.lock import LOCK
from feddst.runtime.loop import Silent
from feddst.runtime.storage import RunDirectory
from feddst.wire.header import Header, read_header

Configure = Callable[..., RunConfig]
Play = Callable[..., Any]
Alike = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], bool]
Work = Callable[[Message], Message]

ROUNDS = 4


class KilledError(BaseException):
    """Nothing that a program could catch by mistake."""


def header_of(message: Message) -> Header:
    """That of the broadcast in a task's message."""
    _, task = read_task_message(message)
    return read_header(memoryview(task.message.payload))[0]


def killed_in(round: int, after: int) -> Callable[[Message, Work], Message]:
    """A courier that ends everything in a round, when so many clients have done their work."""
    done: list[Message] = []

    def carry(message: Message, work: Work) -> Message:
        if message.metadata.message_type == TRAIN and header_of(message).round == round:
            if len(done) == after:
                raise KilledError
            done.append(message)
        return work(message)

    return carry


def kept_in(folder: Path) -> dict[int, dict[str, Tensor]]:
    """What each client has kept of the last round it was in; there is one run."""
    runs = {path.name.partition("-")[0] for path in folder.iterdir()}
    assert len(runs) == 1
    stores = {client: FileStore(folder, client).load(*runs) for client in range(6)}
    last = {client: memory.before(10**9) for client, memory in stores.items()}
    return {client: {**state.tensors, **state.feedback} for client, state in last.items()}


@pytest.mark.parametrize(
    ("method", "wire"),
    [
        ("feddst", {}),
        ("lg-fedavg", {}),
        ("lotteryfl", {}),
        ("feddst", {"wire__values": "q2", "wire__feedback": True}),
        ("lg-fedavg", {"wire__values": "q2", "wire__feedback": True}),
    ],
    ids=["feddst", "lg-fedavg", "lotteryfl", "feedback", "lg-fedavg with feedback"],
)
@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_a_run_that_was_broken_off_ends_as_one_that_was_not(
    method: str, wire: dict[str, Any], ending: str, configure: Configure, play: Play, alike: Alike, tmp_path: Path
) -> None:
    config = configure(method=method, rounds=ROUNDS, cohort__size=4, **wire)
    whole = play(config, node_config={"state-dir": str(tmp_path / "whole")}, out=tmp_path / "unbroken")
    nodes = {"state-dir": str(tmp_path / "broken")}
    if ending == "stopped":
        play(config, node_config=nodes, out=tmp_path / "run", last=2)
    else:
        with pytest.raises(KilledError):
            play(config, node_config=nodes, out=tmp_path / "run", courier=killed_in(round=3, after=2))
    resumed = play(config, node_config=nodes, out=tmp_path / "run", resume=True)
    assert [row.round for row in resumed.rows] == [3, 4]
    assert alike(resumed.weights[-1], whole.weights[-1])
    assert [row.accuracy for row in resumed.rows] == [row.accuracy for row in whole.rows][-len(resumed.rows) :]
    assert resumed.rows[-1].upload_bytes == whole.rows[-1].upload_bytes
    told = [RunDirectory(tmp_path / name).details_file.read_bytes() for name in ("run", "unbroken")]
    assert told[0] == told[1]
    mine, theirs = kept_in(tmp_path / "broken"), kept_in(tmp_path / "whole")
    assert any(theirs.values()) == (method in ("lg-fedavg", "lotteryfl") or bool(wire))
    assert all(alike(mine[client], theirs[client]) for client in range(6))


def test_nodes_that_are_restarted_without_their_files_begin_anew(
    configure: Configure, play: Play, alike: Alike, tmp_path: Path
) -> None:
    """The check that the test above can fail."""
    config = configure(method="lg-fedavg", rounds=ROUNDS)
    whole = play(config)
    play(config, out=tmp_path / "run", last=2)
    resumed = play(config, out=tmp_path / "run", resume=True)
    assert not alike(resumed.weights[-1], whole.weights[-1])


def test_a_checkpoint_after_every_round_is_needed_where_clients_keep_something(
    configure: Configure, play: Play, tmp_path: Path
) -> None:
    config = configure(wire__values="q2", wire__feedback=True, checkpoint_every=2)
    with pytest.raises(OptionError, match=r"checkpoint_every must be 1 with feddst and wire\.feedback.*, got 2"):
        play(config, out=tmp_path / "run")


def test_such_a_config_leaves_the_directory_free(configure: Configure, play: Play, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="checkpoint_every must be 1"):
        play(configure(method="lg-fedavg", checkpoint_every=2), out=tmp_path / "run")
    play(configure(method="lg-fedavg", rounds=1), out=tmp_path / "run")


def test_the_name_that_clients_know_is_the_runs_own(
    configure: Configure, play: Play, alike: Alike, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever another version makes of the options, and whatever other runs of the same options the clients serve."""
    config, nodes = configure(method="lg-fedavg", rounds=ROUNDS), {"state-dir": str(tmp_path / "nodes")}
    whole = play(config)
    play(config, node_config=nodes, out=tmp_path / "run", last=2)
    play(config, node_config=nodes, out=tmp_path / "other", last=3)
    monkeypatch.setattr("feddst.flower.strategy.options_to_store", lambda config: {"renamed": 1})
    resumed = play(config, node_config=nodes, out=tmp_path / "run", resume=True)
    assert alike(resumed.weights[-1], whole.weights[-1])


@pytest.mark.parametrize("changes", [{"method": "lg-fedavg"}, {"wire__values": "q2", "wire__feedback": True}])
def test_a_run_of_an_earlier_version_is_not_resumed_where_clients_would_begin_anew(
    changes: dict[str, Any], configure: Configure, play: Play, tmp_path: Path
) -> None:
    config = configure(rounds=3, **changes)
    play(config, out=tmp_path / "run", last=1)
    (tmp_path / "run" / "name.json").unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(CheckpointError, match=r"has no name\.json.* begin anew\. Go on with the version"):
        play(config, out=tmp_path / "run", resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_run_of_an_earlier_version_goes_on_where_clients_keep_nothing(
    configure: Configure, play: Play, alike: Alike, tmp_path: Path
) -> None:
    whole = play(configure())
    play(configure(), out=tmp_path / "run", last=1)
    (tmp_path / "run" / "name.json").unlink()
    resumed = play(configure(), out=tmp_path / "run", resume=True)
    assert alike(resumed.weights[-1], whole.weights[-1])
    assert RunDirectory(tmp_path / "run").stored_name()


def test_a_whole_mask_is_sent_to_everybody_after_a_restart(configure: Configure, play: Play, tmp_path: Path) -> None:
    """The nodes may have been restarted as well: nobody is taken to have a mask, and nobody fails for want of one."""
    config = configure(rounds=ROUNDS)
    play(config, out=tmp_path / "run", last=2)
    masks: list[int] = []

    def note(message: Message, work: Work) -> Message:
        if message.metadata.message_type == TRAIN:
            masks.append(header_of(message).reference)
        return work(message)

    resumed = play(config, out=tmp_path / "run", resume=True, courier=note)
    assert [(row.clients, row.refused) for row in resumed.rows] == [(6, 0)] * 2
    assert masks[:6] == [0] * 6
    assert all(masks[6:])


def test_a_run_can_go_on_for_longer_than_was_planned(
    configure: Configure, play: Play, alike: Alike, tmp_path: Path
) -> None:
    whole = play(configure(rounds=ROUNDS))
    play(configure(rounds=2), out=tmp_path / "run")
    resumed = play(configure(rounds=ROUNDS), out=tmp_path / "run", resume=True)
    assert [row.round for row in resumed.rows] == [3, 4]
    assert alike(resumed.weights[-1], whole.weights[-1])


def test_a_finished_run_is_only_looked_at(
    configure: Configure, federation: Federation, play: Play, alike: Alike, network: Any, make_grid: Any, tmp_path: Path
) -> None:
    config = configure()
    whole = play(config, out=tmp_path / "run")
    strategy = Strategy(
        config,
        model=network,
        data=federation,
        out=tmp_path / "run",
        resume=True,
        watcher=Silent(),
        flower=FlowerConfig(wait=0.01),
    )
    result = strategy.start(make_grid(nodes=0))  # nobody is asked, so nobody need be there
    assert alike(result.arrays.to_torch_state_dict(), whole.weights[-1])


def test_a_new_run_does_not_overwrite_another(configure: Configure, play: Play, tmp_path: Path) -> None:
    play(configure(rounds=1), out=tmp_path / "run")
    with pytest.raises(CheckpointError, match="is not empty"):
        play(configure(rounds=1), out=tmp_path / "run")


def test_the_same_run_again_begins_anew_whatever_clients_remember(
    configure: Configure, play: Play, alike: Alike, tmp_path: Path
) -> None:
    config = configure(method="lg-fedavg", cohort__size=4, rounds=ROUNDS)
    nodes = {"state-dir": str(tmp_path)}
    one, two = (play(config, node_config=nodes) for _ in range(2))
    assert alike(one.weights[-1], two.weights[-1])
    assert len(list(tmp_path.iterdir())) == 6


def test_a_damaged_memory_is_named_and_does_not_stop_the_others(
    configure: Configure, play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = {"state-dir": str(tmp_path)}
    config = configure(method="lg-fedavg", rounds=2)
    play(config, node_config=nodes)
    [damaged] = tmp_path.glob("*-client3.safetensors")
    damaged.write_bytes(b"\0" * 30)
    on_grid = play(config, node_config=nodes)
    assert [(row.clients, row.refused) for row in on_grid.rows] == [(5, 1)] * 2
    assert "the update of client 3 was refused" in caplog.text
    assert f"{damaged.name} is damaged" in caplog.text


def test_a_run_whose_clients_all_diverge_ends_as_failed_with_their_reasons(
    configure: Configure, play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    config = configure(method="fedavgm", local__lr=1e30, rounds=2)
    with pytest.raises(
        TrainingError, match=r"round 3: 6 of the 6 clients .* the 2 rounds before it; client \d diverged in round 3"
    ):
        play(config)
    assert caplog.text.count("that answered diverged: the model stays as it is") == 2


def test_two_servers_do_not_write_to_one_directory(configure: Configure, play: Play, tmp_path: Path) -> None:
    config, refused = configure(rounds=2), list[str]()

    def intrude(message: Message, work: Work) -> Message:
        if message.metadata.message_type == TRAIN and not refused:
            with pytest.raises(CheckpointError) as caught:
                play(config, out=tmp_path / "run", resume=True)
            refused.append(str(caught.value))
        return work(message)

    play(config, out=tmp_path / "run", courier=intrude)
    assert refused[0].startswith(f"{tmp_path / 'run'} is being written to by process {os.getpid()} on ")
    assert len(RunDirectory(tmp_path / "run").rows()) == 2
    assert LOCK not in os.listdir(tmp_path / "run")
