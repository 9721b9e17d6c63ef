"""Clients that fail, lie, are late or never come back: the round goes on with the others, and says so."""

import itertools
import re
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from torch import Tensor, nn

import feddst
from feddst.data import Federation
from feddst.engines import EngineConfig, ReferenceEngine, Sink
from feddst.errors import TrainingError
from feddst.flower import FlowerConfig, InProcessGrid, Strategy, client_app
from feddst.flower.messages import HELLO, TRAIN, answer_message, read_answer, read_task_message
from feddst.models import make_module
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent, play
from feddst.runtime.run import Run
from feddst.runtime.session import Result
from feddst.wire import ClientResult, ClientTask
from feddst.wire.header import CHECKED, SIZE, read_header
from feddst.wire.history import NO_MASK

Configure = Callable[..., RunConfig]
Play = Callable[..., Any]
Alike = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], bool]
Work = Callable[[Message], Message]
Tamper = Callable[[int, Message, Work], Message | None]

BAD = 5
"""The client that does wrong: the last one, so that a federation without it has the same others."""
OTHERS = BAD
PATIENT = FlowerConfig(wait=5, failures=100)
HASTY = FlowerConfig(wait=5, failures=100, deadline=0.3)


class Courier:
    """Carries messages, and lets `tamper` deal with the work of one client; notes who was asked when, and for what."""

    def __init__(self, tamper: Tamper, clients: frozenset[int] = frozenset({BAD})) -> None:
        self._tamper = tamper
        self._clients = clients
        self.round = 0
        self.asked: dict[int, dict[int, Any]] = {}

    def __call__(self, message: Message, work: Work) -> Message | None:
        if message.metadata.message_type != TRAIN:
            return work(message)
        _, task = read_task_message(message)
        header, _ = read_header(memoryview(task.message.payload))
        self.round = max(self.round, header.round)
        self.asked.setdefault(task.client, {})[header.round] = header
        return self._tamper(header.round, message, work) if task.client in self._clients else work(message)

    def rounds(self, client: int) -> list[int]:
        """In which rounds a client was asked."""
        return sorted(self.asked.get(client, {}))

    def had_a_mask(self, client: int, round: int) -> bool:
        """Whether a client was taken to have a mask already when it was asked."""
        return bool(self.asked[client][round].reference != NO_MASK)


class Without(ReferenceEngine):
    """An engine in which some clients do not answer in some rounds."""

    def __init__(self, module: nn.Module, federation: Federation, absent: set[tuple[int, int]]) -> None:
        super().__init__(module, federation.dataset, torch.device("cpu"))
        self._absent = absent

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        for index, task in enumerate(tasks):
            if (task.round, task.client) not in self._absent:
                sink.result(index, self.answer(task))


def weights_without(
    absent: set[tuple[int, int]], config: RunConfig, federation: Federation, network: Callable[[], nn.Module]
) -> dict[str, Tensor]:
    """What comes of a run in an engine of ours if these (round, client) do not answer."""
    one = Run(config, federation, make_module(network, config.seed), untrusted=True)
    play([one], Without(network(), federation, absent), Silent())
    return {**one.state.params, **one.state.buffers}


def answer(message: Message, payload: bytes, loss: float = 0.5) -> Message:
    return answer_message(message, ClientResult(payload, loss=loss))


def honest(message: Message, work: Work) -> bytes:
    payload = read_answer(work(message)).payload
    assert payload is not None
    return payload


def framed(payload: bytes) -> bytes:
    """The payload with the checksum that it should have."""
    checksum = zlib.crc32(payload[SIZE:], zlib.crc32(payload[:CHECKED]))
    return payload[:CHECKED] + checksum.to_bytes(4, "little") + payload[SIZE:]


def with_values(payload: bytes, value: float) -> bytes:
    size = read_header(memoryview(payload))[0].value_bytes
    return framed(payload[:-size] + np.full(size // 4, value, "<f4").tobytes())


def of_another_model(payload: bytes) -> bytes:
    return framed(payload[:24] + bytes(byte ^ 0x55 for byte in payload[24:32]) + payload[32:])


GARBAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "too long": (lambda payload: payload + b"\0", r"its header speaks of|the largest possible"),
    "too short": (lambda payload: payload[:-1], r"its header speaks of"),
    "cut off in its header": (lambda payload: payload[:20], r"its header alone would have 48"),
    "not a number": (lambda payload: with_values(payload, float("nan")), r"holds nan: not a number"),
    "infinite": (lambda payload: with_values(payload, float("inf")), r"holds inf: not a number, or too large"),
    "huge values": (lambda payload: with_values(payload, 1e38), r"holds 1e\+38: not a number, or too large"),
    "the largest weights that can be averaged": (
        lambda payload: with_values(payload, 1e8),
        r"its weights are 1\.?\d*e\+\d+ away from those that were sent",
    ),
    "another model's": (of_another_model, r"the payload is for another model"),
    "damaged": (lambda payload: payload[:-1] + bytes([payload[-1] ^ 1]), r"the checksum does not match"),
    "random": (lambda payload: np.random.default_rng(1).bytes(len(payload)), r"begins with"),
    "a hundred megabytes": (lambda payload: payload + bytes(100_000_000), r"the largest possible"),
    "empty": (lambda payload: b"", r"has 0 bytes"),
    "the weight of a thousand": (
        lambda payload: framed(payload[:16] + (1000).to_bytes(4, "little") + payload[20:]),
        r"claims weight 1000",
    ),
    "a later round's": (
        lambda payload: framed(payload[:12] + (9).to_bytes(4, "little") + payload[16:]),
        r"is for round 9",
    ),
}


@pytest.fixture
def others(configure: Configure, federation_of: Callable[[int], Federation], network: Any) -> Result:
    """How a run goes in which there is no such client."""
    if not _OTHERS:
        config = configure(cohort__size=OTHERS, rounds=2)
        _OTHERS.append(feddst.run(config, model=network, data=federation_of(OTHERS), watcher=Silent()))
    return _OTHERS[0]


_OTHERS: list[Result] = []


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_refused_and_named_and_the_others_are_averaged(
    kind: str, configure: Configure, play: Play, alike: Alike, others: Result, caplog: pytest.LogCaptureFixture
) -> None:
    spoil, reason = GARBAGE[kind]
    courier = Courier(lambda round, message, work: answer(message, spoil(honest(message, work))))
    on_grid = play(configure(rounds=2), courier=courier, flower=PATIENT)
    assert alike(on_grid.weights[-1], others.model.state_dict())
    assert [(row.clients, row.refused, row.missing) for row in on_grid.rows] == [(OTHERS, 1, 0)] * 2
    assert [row.train_loss for row in on_grid.rows] == [row.train_loss for row in others.rows]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    for round, line in enumerate(lines, 1):
        assert line.startswith(f"round {round}: the update of client {BAD} was refused: ")
        assert re.search(reason, line), line
    assert courier.rounds(BAD) == [1, 2]
    assert [courier.had_a_mask(BAD, 2), courier.had_a_mask(0, 2)] == [False, True]


def test_what_was_refused_counts_as_bytes_that_came(configure: Configure, play: Play, others: Result) -> None:
    courier = Courier(lambda round, message, work: answer(message, bytes(70_000)))
    row = play(configure(rounds=1), courier=courier, flower=PATIENT).rows[0]
    assert row.upload_bytes == others.rows[0].upload_bytes + 70_000
    assert row.upload_bits == others.rows[0].upload_bits


def test_an_old_update_is_not_taken_again(
    configure: Configure,
    federation: Federation,
    play: Play,
    alike: Alike,
    network: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    old: list[bytes] = []

    def replay(round: int, message: Message, work: Work) -> Message:
        old.append(honest(message, work))
        return answer(message, old[0])

    on_grid = play(configure(), courier=Courier(replay), flower=PATIENT)
    assert [(row.clients, row.refused) for row in on_grid.rows] == [(6, 0), (5, 1), (5, 1)]
    expected = weights_without({(2, BAD), (3, BAD)}, configure(), federation, network)
    assert alike(on_grid.weights[-1], expected)
    assert f"client {BAD} was refused: the update is for round 1, this is round 2" in caplog.text


@pytest.mark.parametrize("values", ["q4", "bfloat16"])
def test_noise_in_a_valid_frame_does_no_harm_beyond_its_weight(values: str, configure: Configure, play: Play) -> None:
    """Nobody can tell such an update from an honest one; it stays within what the format lets a value be."""

    def noisy(round: int, message: Message, work: Work) -> Message:
        payload = honest(message, work)
        size = read_header(memoryview(payload))[0].value_bytes
        return answer(message, framed(payload[:-size] + np.random.default_rng(round).bytes(size)))

    on_grid = play(configure(wire__values=values, rounds=2), courier=Courier(noisy), flower=PATIENT)
    assert len(on_grid.rows) == 2
    assert all(bool(torch.isfinite(value).all()) for value in on_grid.weights[-1].values())


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda message: Message(RecordDict(), reply_to=message), "the message has no payload"),
        (lambda message: answer(message, b"x" * 100, float("nan")), "its loss is nan"),
    ],
    ids=["nothing", "a loss that is none"],
)
def test_other_messages_are_refused_as_well(
    spoil: Callable[[Message], Message],
    reason: str,
    configure: Configure,
    play: Play,
    alike: Alike,
    others: Result,
    caplog: pytest.LogCaptureFixture,
) -> None:
    courier = Courier(lambda round, message, work: spoil(message))
    on_grid = play(configure(rounds=2), courier=courier, flower=PATIENT)
    assert alike(on_grid.weights[-1], others.model.state_dict())
    assert [(row.clients, row.refused) for row in on_grid.rows] == [(OTHERS, 1)] * 2
    assert f"round 2: the update of client {BAD} was refused: {reason}" in caplog.text


def test_what_a_client_raises_is_told_by_its_last_line(
    configure: Configure, federation: Federation, alike: Alike, others: Result, network: Any, caplog: Any, seen: Any
) -> None:
    def images_of(context: Context) -> Any:
        client = int(context.node_config["partition-id"])
        if client == BAD and asked:
            raise MemoryError("no room for images")
        return federation.client_data(client)

    asked: list[Message] = []

    def note(message: Message, work: Work) -> Message:
        if message.metadata.message_type == TRAIN:
            asked.append(message)
        return work(message)

    app = client_app(network, images_of, engine=EngineConfig(kind="reference"))
    watcher = seen()
    Strategy(configure(rounds=2), model=network, data=federation, watcher=watcher, flower=PATIENT).start(
        InProcessGrid(app, 6, courier=note)
    )
    assert alike(watcher.weights[-1], others.model.state_dict())
    assert [(row.clients, row.refused) for row in watcher.rows] == [(OTHERS, 1)] * 2
    assert f"round 1: the update of client {BAD} was refused: the client failed: MemoryError: no room" in caplog.text


def test_a_lost_answer_is_missed_at_the_deadline(
    configure: Configure, play: Play, alike: Alike, others: Result
) -> None:
    courier = Courier(lambda round, message, work: None)
    began = time.monotonic()
    on_grid = play(configure(rounds=2), courier=courier, flower=HASTY)
    assert 2 * HASTY.deadline < time.monotonic() - began < 20
    assert alike(on_grid.weights[-1], others.model.state_dict())
    assert [(row.clients, row.refused, row.missing) for row in on_grid.rows] == [(OTHERS, 0, 1)] * 2
    assert not courier.had_a_mask(BAD, 2)
    assert on_grid.rows[0].download_bytes > others.rows[0].download_bytes


def test_a_run_in_which_nobody_answers_ends_as_failed_and_says_so(configure: Configure, play: Play) -> None:
    def lose(round: int, message: Message, work: Work) -> None:
        return None

    with pytest.raises(TrainingError, match=r"^round 3 has 0 updates.* before it; 6 clients did not answer in time$"):
        play(configure(rounds=1), courier=Courier(lose, frozenset(range(6))), flower=HASTY)


def test_a_late_answer_is_counted_and_left_alone(
    configure: Configure,
    federation: Federation,
    play: Play,
    alike: Alike,
    network: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("feddst.flower.engine.LIFE", 100.0)
    replies: dict[int, Message] = {}

    def late(round: int, message: Message, work: Work) -> Message | None:
        if round not in replies:
            replies[round] = work(message)
        return None if round == courier.round == 1 else replies[round]

    courier = Courier(late)
    on_grid = play(configure(), courier=courier, flower=HASTY)
    assert [(row.clients, row.missing) for row in on_grid.rows] == [(5, 1), (6, 0), (6, 0)]
    assert on_grid.rows[0].late == 0
    assert sum(row.late for row in on_grid.rows) == 1
    assert sum(row.refused for row in on_grid.rows) == 0
    assert alike(on_grid.weights[-1], weights_without({(1, BAD)}, configure(), federation, network))
    assert [courier.had_a_mask(BAD, round) for round in (2, 3)] == [False, True]


def test_a_round_ends_when_enough_of_those_asked_have_answered(configure: Configure, play: Play) -> None:
    """Five are asked, three are enough, and two of the five never answer."""
    silent: dict[int, set[str]] = {}

    def first_two_are_silent(round: int, message: Message, work: Work) -> Message | None:
        chosen = silent.setdefault(round, set())
        if len(chosen) < 2:
            chosen.add(message.metadata.message_id)
        return None if message.metadata.message_id in chosen else work(message)

    courier = Courier(first_two_are_silent, frozenset(range(6)))
    flower = FlowerConfig(wait=5, deadline=60, spare=2)
    began = time.monotonic()
    on_grid = play(configure(cohort__size=3, rounds=2), courier=courier, flower=flower)
    assert time.monotonic() - began < 30
    assert [row.clients for row in on_grid.rows] == [3, 3]
    assert [sum(round in courier.rounds(client) for client in range(6)) for round in (1, 2)] == [5, 5]


def test_those_who_are_too_many_are_not_averaged(configure: Configure, play: Play) -> None:
    on_grid = play(configure(cohort__size=3, rounds=2), flower=FlowerConfig(wait=5, deadline=60, spare=2))
    assert [(row.clients, row.refused, row.missing) for row in on_grid.rows] == [(3, 0, 0)] * 2
    plain = play(configure(cohort__size=5, rounds=2), flower=FlowerConfig(wait=5))
    fetched = [row.clients + row.late for row in on_grid.rows]
    assert fetched == [5, 5]  # all five had been fetched when it was noticed that three are enough
    assert on_grid.rows[0].upload_bytes == plain.rows[0].upload_bytes  # and so crossed the line


class Unreadable(InProcessGrid):
    """A grid that cannot read what one node has written, and where another says it was asked something else."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        names = list(message_ids)
        bad = [name for name in names if name in self._waiting and self._is(self._waiting[name], TRAIN, BAD)]
        if bad:
            if len(names) == 1:
                del self._waiting[names[0]]
            raise ValueError("no such object")
        found = list(super().pull_messages(names))
        for message in found:
            if message.metadata.message_type == HELLO and message.metadata.src_node_id == 1:
                message.metadata.__dict__["_reply_to_message_id"] = "a message that nobody sent"
        return found

    def _is(self, message: Message, kind: str, client: int) -> bool:
        return message.metadata.message_type == kind and message.metadata.dst_node_id == client + 1


def test_what_flower_cannot_read_does_not_end_the_run(
    configure: Configure, play: Play, make_grid: Any, caplog: pytest.LogCaptureFixture
) -> None:
    grid = make_grid(kind=Unreadable)
    on_grid = play(configure(rounds=2), grid=grid, flower=FlowerConfig(wait=0.5, deadline=5))
    assert [(row.clients, row.refused, row.missing) for row in on_grid.rows] == [(4, 1, 1)] * 2
    assert f"the update of client {BAD} was refused: it cannot be read: no such object" in caplog.text


def test_when_everybody_would_have_to_rest_nobody_does(configure: Configure, play: Play) -> None:
    courier = Courier(
        lambda round, message, work: answer(message, b"") if round < 3 else work(message), frozenset(range(6))
    )
    on_grid = play(configure(rounds=4), courier=courier, flower=FlowerConfig(wait=5, failures=2, rest=10))
    assert [row.clients for row in on_grid.rows] == [0, 0, 6, 6, 6, 6]  # the first two do not count


@pytest.mark.parametrize(("size", "spare"), [(5, 3), (6, 4), (4, 100)])
def test_no_round_ends_with_fewer_than_it_needs_for_want_of_spare_clients(
    size: int, spare: int, configure: Configure, play: Play
) -> None:
    flower = FlowerConfig(wait=5, deadline=60, spare=spare)
    on_grid = play(configure(cohort__size=size, rounds=2), flower=flower)
    assert [row.clients for row in on_grid.rows] == [size, size]


def test_a_client_that_fails_again_and_again_rests_for_a_while(
    configure: Configure, play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    courier = Courier(lambda round, message, work: work(message) if round > 4 else answer(message, b"no"))
    flower = FlowerConfig(wait=5, failures=2, rest=2)
    on_grid = play(configure(rounds=5), courier=courier, flower=flower)
    assert courier.rounds(BAD) == [1, 2, 5]
    assert [row.clients for row in on_grid.rows] == [5, 5, 5, 5, 6]
    assert [row.refused for row in on_grid.rows] == [1, 1, 0, 0, 0]
    assert [row.missing for row in on_grid.rows] == [0, 0, 1, 1, 0]
    assert f"client {BAD} failed 2 times in a row: 2 rounds without it" in caplog.text
    assert f"round 3: client {BAD} was not asked: it rests after several failures" in caplog.text


def test_what_was_not_sent_is_not_counted(configure: Configure, play: Play, others: Result) -> None:
    """From the second round on the client rests: what comes and goes is what comes and goes without it."""
    courier = Courier(lambda round, message, work: answer(message, b""))
    on_grid = play(configure(rounds=2), courier=courier, flower=FlowerConfig(wait=5, failures=1, rest=10))
    totals = [
        [(row.download_bytes, row.download_mask_bytes, row.download_bits) for row in rows]
        for rows in (on_grid.rows, others.rows)
    ]
    grown = [
        [tuple(b - a for a, b in zip(one, two, strict=True)) for one, two in itertools.pairwise(each)]
        for each in totals
    ]
    assert grown[0] == grown[1]


def test_one_good_answer_makes_up_for_failures_before(configure: Configure, play: Play) -> None:
    courier = Courier(lambda round, message, work: work(message) if round % 2 == 0 else answer(message, b""))
    on_grid = play(configure(rounds=4), courier=courier, flower=FlowerConfig(wait=5, failures=2, rest=2))
    assert [row.clients for row in on_grid.rows] == [5, 6, 5, 6]


def test_silence_is_a_failure_too(configure: Configure, play: Play) -> None:
    courier = Courier(lambda round, message, work: None)
    on_grid = play(configure(rounds=2), courier=courier, flower=FlowerConfig(wait=5, deadline=0.3, failures=1, rest=5))
    assert courier.rounds(BAD) == [1]
    assert [row.missing for row in on_grid.rows] == [1, 1]


def test_a_round_of_garbage_leaves_the_model_as_it_was(
    configure: Configure, play: Play, alike: Alike, caplog: pytest.LogCaptureFixture
) -> None:
    courier = Courier(
        lambda round, message, work: answer(message, b"\0" * 50) if round == 2 else work(message),
        frozenset(range(6)),
    )
    on_grid = play(configure(min_clients=2), courier=courier, flower=PATIENT)
    assert [(row.clients, row.refused) for row in on_grid.rows] == [(6, 0), (0, 6), (6, 0), (6, 0)]
    assert alike(on_grid.weights[1], on_grid.weights[0])
    assert not alike(on_grid.weights[2], on_grid.weights[1])
    assert "round 2 has 0 updates, fewer than min_clients (2): the model stays as it is" in caplog.text


@pytest.mark.parametrize("method", ["snip", "grasp", "prunefl"])
def test_where_one_client_is_to_choose_the_mask_and_fails_the_run_ends_and_says_so(
    method: str, configure: Configure, play: Play
) -> None:
    courier = Courier(
        lambda round, message, work: answer(message, b"") if round == 0 else work(message), frozenset(range(6))
    )
    with pytest.raises(TrainingError, match=r"round 0: the client that is to choose .* there is no mask to begin with"):
        play(configure(method=method), courier=courier, flower=PATIENT)
