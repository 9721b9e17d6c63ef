"""Messages: what comes from the other side is read as what it is, or said not to be that, whatever it is."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from feddst.core import ClientPlan, LocalTraining
from feddst.errors import WireError
from feddst.flower import InProcessGrid
from feddst.flower.messages import (
    HELLO,
    STYPE,
    TRAIN,
    Introduction,
    answer_message,
    hello_message,
    introduction_message,
    read_answer,
    read_introduction,
    read_task_message,
    task_message,
)
from feddst.flower.tasks import write_task
from feddst.wire import ClientResult, ClientTask
from feddst.wire import Message as Broadcast

TASK = ClientTask(3, 7, ClientPlan(LocalTraining()), Broadcast(b"broadcast"))


@pytest.fixture
def asked() -> Message:
    """A task for node 5, on its way."""
    grid = InProcessGrid(ClientApp(), 1)
    message = task_message(5, "ab12", TASK, 60)
    grid.push_messages([message])
    return message


def payload(data: bytes = b"update", stype: str = STYPE) -> ArrayRecord:
    return ArrayRecord({"bytes": Array(dtype="uint8", shape=(len(data),), stype=stype, data=data)})


def loss(value: Any = 0.5) -> MetricRecord:
    return MetricRecord({"loss": value})


def assert_failed(found: ClientResult, reason: str, *, diverged: bool) -> None:
    """Nothing came but this: a failure's loss is NaN, which is equal to nothing."""
    assert replace(found, loss=0.0) == replace(ClientResult.failed(reason, diverged=diverged), loss=0.0)
    assert math.isnan(found.loss)


def test_a_task_comes_through(asked: Message) -> None:
    run, task = read_task_message(asked)
    assert run == "ab12"
    assert (task.client, task.seed, task.plan, task.wire) == (3, 7, TASK.plan, TASK.wire)
    assert write_task(run, task) == write_task("ab12", TASK)
    assert (task.message.payload, task.message.held) == (b"broadcast", b"")
    assert (asked.metadata.dst_node_id, asked.metadata.message_type, asked.metadata.ttl) == (5, TRAIN, 60)


def test_an_answer_comes_through(asked: Message) -> None:
    found = read_answer(answer_message(asked, ClientResult(b"update", loss=0.25)))
    assert found == ClientResult(b"update", loss=0.25)


def test_an_introduction_comes_through(asked: Message) -> None:
    message = hello_message(9, 60)
    assert (message.metadata.dst_node_id, message.metadata.message_type) == (9, HELLO)
    assert read_introduction(introduction_message(asked, Introduction(4, 300))) == Introduction(4, 300)


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"payload": payload()},
        {"task": ConfigRecord({"json": "{}"}), "payload": payload()},
        {"task": ConfigRecord({"json": 5}), "payload": payload()},
        {"task": ConfigRecord({"text": "{}"}), "payload": payload()},
        {"task": MetricRecord({"json": 5}), "payload": payload()},
        {"task": payload(), "payload": payload()},
    ],
    ids=["nothing", "no task", "an empty task", "a number", "another name", "metrics", "an array"],
)
def test_a_message_without_a_task_is_refused(records: dict[str, Any]) -> None:
    InProcessGrid(ClientApp(), 1)
    with pytest.raises(WireError):
        read_task_message(Message(RecordDict(records), 1, TRAIN))


def test_a_task_without_a_payload_is_refused(asked: Message) -> None:
    del asked.content["payload"]
    with pytest.raises(WireError, match="has no payload"):
        read_task_message(asked)


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"metrics": loss()},
        {"payload": payload(stype="numpy.ndarray"), "metrics": loss()},
        {"payload": payload(stype=""), "metrics": loss()},
        {"payload": ArrayRecord([np.ones((2, 3))]), "metrics": loss()},
        {"payload": ArrayRecord({"bytes": Array(np.arange(4, dtype=np.uint8))}), "metrics": loss()},
        {"payload": ArrayRecord(), "metrics": loss()},
        {"payload": ConfigRecord({"bytes": b"update"}), "metrics": loss()},
        {"payload": loss(), "metrics": loss()},
        {"update": payload(), "metrics": loss()},
    ],
    ids=[
        "nothing",
        "only a loss",
        "Flower's own serialisation",
        "no serialisation",
        "an ordinary array",
        "an ordinary array of that name",
        "no array",
        "a config",
        "metrics",
        "another name",
    ],
)
def test_an_answer_without_a_payload_is_a_failure(asked: Message, records: dict[str, Any]) -> None:
    found = read_answer(Message(RecordDict(records), reply_to=asked))
    assert (found.payload, found.worked, found.failure) == (None, False, "the message has no payload")
    arrays = [array for record in records.values() if isinstance(record, ArrayRecord) for array in record.values()]
    assert found.size == sum(len(array.data) for array in arrays)


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"metrics": MetricRecord()},
        {"metrics": MetricRecord({"accuracy": 1.0})},
        {"metrics": loss(float("nan"))},
        {"metrics": loss(float("inf"))},
        {"metrics": loss([0.5, 0.5])},
        {"metrics": loss(10**400)},
        {"metrics": ConfigRecord({"loss": "0.5"})},
        {"metrics": ConfigRecord({"loss": 0.5})},
        {"metrics": payload()},
    ],
    ids=["nothing", "empty", "another", "nan", "inf", "a list", "a huge number", "a text", "a config", "an array"],
)
def test_an_answer_without_a_loss_is_a_failure_of_its_size(asked: Message, records: dict[str, Any]) -> None:
    found = read_answer(Message(RecordDict({"payload": payload(b"12345"), **records}), reply_to=asked))
    assert found.payload is None
    assert found.failure.startswith("its loss is")
    assert (found.size, found.asked) == (5, True)


def test_an_empty_payload_is_left_to_the_wire_format(asked: Message) -> None:
    found = read_answer(Message(RecordDict({"payload": payload(b""), "metrics": loss()}), reply_to=asked))
    assert found == ClientResult(b"", loss=0.5)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Traceback:\n  in train\nValueError: no such thing\n", "the client failed: ValueError: no such thing"),
        ("x" * 5000, "the client failed: " + "x" * 300),
        ("", "the client failed: error 3"),
        ("\n \n", "the client failed: "),
        ("<class 'ValueError'>:<'no such thing'>", "the client failed: ValueError: no such thing"),
        ("<class 'a.b.Odd'>:<'first\nlast'>", "the client failed: last'>"),
        ("<class 'feddst.errors.DataError'>:<'no images'>", "the client failed: no images"),
    ],
)
def test_an_error_is_a_failure_that_says_how_it_ended(asked: Message, reason: str, said: str) -> None:
    found = read_answer(Message(Error(3, reason), reply_to=asked))
    assert found.payload is None
    assert found.failure.strip() == said.strip()
    assert found.failure
    assert found.asked


def test_a_client_that_diverged_says_so(asked: Message) -> None:
    told = answer_message(asked, ClientResult.failed("client 7 diverged in round 2", diverged=True))
    assert_failed(read_answer(told), "client 7 diverged in round 2", diverged=True)


def test_a_client_that_failed_has_not_diverged(asked: Message) -> None:
    found = read_answer(Message(Error(3, "<class 'feddst.errors.DivergenceError'>:<'no'>"), reply_to=asked))
    assert_failed(found, "the client failed: no", diverged=False)


@pytest.mark.parametrize(
    "record",
    [
        MetricRecord(),
        MetricRecord({"client": 1}),
        MetricRecord({"client": 1, "images": 2.0}),
        MetricRecord({"client": -1, "images": 2}),
        MetricRecord({"client": 1, "images": [2]}),
        ConfigRecord({"client": 1, "images": 2}),
        ArrayRecord([np.ones(2)]),
    ],
)
def test_whoever_does_not_introduce_himself_does_not_speak_our_language(asked: Message, record: Any) -> None:
    said = Message(RecordDict({"metrics": record}), reply_to=asked)
    with pytest.raises(WireError, match=r"^it does not speak feddst$"):
        read_introduction(said)


def test_a_node_whose_app_fails_says_why(asked: Message) -> None:
    said = Message(Error(3, "Traceback\nFlowerError: no partition-id"), reply_to=asked)
    with pytest.raises(WireError, match=r"^FlowerError: no partition-id$"):
        read_introduction(said)
