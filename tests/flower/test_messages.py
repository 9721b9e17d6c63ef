"""Messages: what comes from the other side is read as what it is, or said not to be that, whatever it is."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from feddst.clients.task import Failure, Reply
from feddst.core import ClientPlan, ClientState, LocalTraining
from feddst.errors import WireError
from feddst.flower import InProcessGrid
from feddst.flower.messages import (
    HELLO,
    STYPE,
    WORK,
    Introduction,
    diverged_letter,
    hello_letter,
    introduction_letter,
    read_introduction,
    read_reply,
    read_work,
    reply_letter,
    work_letter,
)
from feddst.flower.orders import Orders
from feddst.wire import WireConfig

ORDERS = Orders("ab12", 3, 7, ClientPlan(LocalTraining()), WireConfig())


@pytest.fixture
def letter() -> Message:
    """Work for node 5, on its way."""
    grid = InProcessGrid(ClientApp(), 1)
    message = work_letter(5, b"broadcast", ORDERS, 60)
    grid.push_messages([message])
    return message


def payload(data: bytes = b"update", stype: str = STYPE) -> ArrayRecord:
    return ArrayRecord({"bytes": Array(dtype="uint8", shape=(len(data),), stype=stype, data=data)})


def loss(value: Any = 0.5) -> MetricRecord:
    return MetricRecord({"loss": value})


def test_work_comes_through(letter: Message) -> None:
    assert read_work(letter) == (ORDERS, b"broadcast")
    assert (letter.metadata.dst_node_id, letter.metadata.message_type, letter.metadata.ttl) == (5, WORK, 60)


def test_a_reply_comes_through(letter: Message) -> None:
    found = read_reply(reply_letter(letter, Reply(b"update", ClientState(), 0.25)))
    assert found == Reply(b"update", ClientState(), 0.25)


def test_an_introduction_comes_through(letter: Message) -> None:
    message = hello_letter(9, 60)
    assert (message.metadata.dst_node_id, message.metadata.message_type) == (9, HELLO)
    assert read_introduction(introduction_letter(letter, Introduction(4, 300))) == Introduction(4, 300)


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"payload": payload()},
        {"orders": ConfigRecord({"json": "{}"}), "payload": payload()},
        {"orders": ConfigRecord({"json": 5}), "payload": payload()},
        {"orders": ConfigRecord({"text": "{}"}), "payload": payload()},
        {"orders": MetricRecord({"json": 5}), "payload": payload()},
        {"orders": payload(), "payload": payload()},
    ],
    ids=["nothing", "no orders", "empty orders", "a number", "another name", "metrics", "an array"],
)
def test_work_without_orders_is_refused(records: dict[str, Any]) -> None:
    InProcessGrid(ClientApp(), 1)
    with pytest.raises(WireError):
        read_work(Message(RecordDict(records), 1, WORK))


def test_orders_without_a_payload_are_refused(letter: Message) -> None:
    del letter.content["payload"]
    with pytest.raises(WireError, match="has no payload"):
        read_work(letter)


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
def test_a_reply_without_a_payload_is_a_failure(letter: Message, records: dict[str, Any]) -> None:
    found = read_reply(Message(RecordDict(records), reply_to=letter))
    assert isinstance(found, Failure)
    assert found.reason == "the message has no payload"
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
def test_a_reply_without_a_loss_is_a_failure_of_its_size(letter: Message, records: dict[str, Any]) -> None:
    found = read_reply(Message(RecordDict({"payload": payload(b"12345"), **records}), reply_to=letter))
    assert isinstance(found, Failure)
    assert found.reason.startswith("its loss is")
    assert (found.size, found.sent) == (5, True)


def test_an_empty_payload_is_left_to_the_wire_format(letter: Message) -> None:
    found = read_reply(Message(RecordDict({"payload": payload(b""), "metrics": loss()}), reply_to=letter))
    assert found == Reply(b"", ClientState(), 0.5)


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
def test_an_error_is_a_failure_that_says_how_it_ended(letter: Message, reason: str, said: str) -> None:
    found = read_reply(Message(Error(3, reason), reply_to=letter))
    assert isinstance(found, Failure)
    assert found.reason.strip() == said.strip()
    assert found.sent


def test_a_client_that_diverged_says_so(letter: Message) -> None:
    found = read_reply(diverged_letter(letter, "client 7 diverged in round 2"))
    assert found == Failure("client 7 diverged in round 2", diverged=True)


def test_a_client_that_failed_has_not_diverged(letter: Message) -> None:
    found = read_reply(Message(Error(3, "<class 'feddst.errors.DivergenceError'>:<'no'>"), reply_to=letter))
    assert found == Failure("the client failed: no")


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
def test_whoever_does_not_introduce_himself_does_not_speak_our_language(letter: Message, record: Any) -> None:
    said = Message(RecordDict({"metrics": record}), reply_to=letter)
    assert read_introduction(said) == Failure("it does not speak feddst")


def test_a_node_whose_app_fails_says_why(letter: Message) -> None:
    said = read_introduction(Message(Error(3, "Traceback\nFlowerError: no partition-id"), reply_to=letter))
    assert said == Failure("FlowerError: no partition-id")
