"""Flower messages: payloads of our wire format, which Flower carries without looking into them."""

import re
from dataclasses import dataclass
from typing import TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from feddst.clients.task import Failure, Reply
from feddst.core import ClientState
from feddst.errors import FeddstError, WireError
from feddst.flower.orders import Orders, read_orders, write_orders

WORK, HELLO = "train.feddst", "query.feddst"
"""The types of the messages that ask for an update, and who is there."""

STYPE = "feddst.v1"
"""What Flower is told of how a payload is serialised: that it is not its business."""

R = TypeVar("R", ArrayRecord, ConfigRecord, MetricRecord)

OTHER_CLIENT = "these orders are for client"
"""What a node says that is another client than the server takes it for."""

_RAISED = re.compile(r"<class '(?P<module>[\w.]*?)\.?(?P<kind>\w+)'>:<'(?P<said>.*?)(?:'>)?")
"""How Flower says what a client app has raised; a long one is cut off."""
_PAYLOAD, _ORDERS, _METRICS, _DIVERGED = "payload", "orders", "metrics", "diverged"
_LONGEST_REASON = 300
_LARGEST_LOSS = 1e30
"""Nothing is done with losses but to average them, which should not overflow."""


@dataclass(frozen=True)
class Introduction:
    """What a node says of itself: which client it is, and how many images it has."""

    client: int
    images: int


def work_letter(node: int, payload: bytes, orders: Orders, ttl: float) -> Message:
    """A broadcast with orders, for one node."""
    content = RecordDict({_PAYLOAD: _wrapped(payload), _ORDERS: ConfigRecord({"json": write_orders(orders)})})
    return Message(content, node, WORK, ttl=ttl)


def read_work(message: Message) -> tuple[Orders, bytes]:
    """Orders and payload of such a letter; raises `WireError`."""
    text = _record(message.content, _ORDERS, ConfigRecord).get("json")
    if not isinstance(text, str):
        raise WireError("the message has no orders")
    return read_orders(text), _unwrapped(message.content)


def reply_letter(message: Message, reply: Reply) -> Message:
    """What goes back."""
    content = RecordDict({_PAYLOAD: _wrapped(reply.payload), _METRICS: MetricRecord({"loss": reply.loss})})
    return Message(content, reply_to=message)


def diverged_letter(message: Message, reason: str) -> Message:
    """What goes back where training has diverged: nothing but that, told apart from a client that fails."""
    return Message(RecordDict({_DIVERGED: ConfigRecord({"reason": reason})}), reply_to=message)


def read_reply(message: Message) -> Reply | Failure:
    """What came back, from a stranger: a reply whose payload is still to be decoded, or why there is none."""
    if message.has_error():
        return Failure(f"the client failed: {_said(message.error.reason or f'error {message.error.code}')}")
    diverged = _record(message.content, _DIVERGED, ConfigRecord).get("reason")
    if isinstance(diverged, str):
        return Failure(_last_line(diverged) or "the client diverged", size_of(message), diverged=True)
    try:
        payload = _unwrapped(message.content)
    except WireError as error:
        return Failure(str(error), size_of(message))
    loss = _record(message.content, _METRICS, MetricRecord).get("loss")
    if not isinstance(loss, float) or not abs(loss) < _LARGEST_LOSS:
        return Failure(f"its loss is {str(loss)[:40]}", len(payload))
    return Reply(payload, ClientState(), loss)


def size_of(message: Message) -> int:
    """The bytes of a message that are not Flower's."""
    records = message.content.values() if message.has_content() else ()
    return sum(len(array.data) for record in records if isinstance(record, ArrayRecord) for array in record.values())


def hello_letter(node: int, ttl: float) -> Message:
    """Asks a node which client it is."""
    return Message(RecordDict(), node, HELLO, ttl=ttl)


def introduction_letter(message: Message, introduction: Introduction) -> Message:
    """The answer to that."""
    record = MetricRecord({name: getattr(introduction, name) for name in ("client", "images")})
    return Message(RecordDict({_METRICS: record}), reply_to=message)


def read_introduction(message: Message) -> Introduction | Failure:
    """What a node says of itself, or why it does not."""
    if message.has_error():
        return Failure(_said(message.error.reason or f"error {message.error.code}"))
    record = _record(message.content, _METRICS, MetricRecord)
    values = [record.get(name) for name in ("client", "images")]
    whole = [value for value in values if type(value) is int and value >= 0]
    return Introduction(*whole) if len(whole) == 2 else Failure("it does not speak feddst")


def _wrapped(payload: bytes) -> ArrayRecord:
    return ArrayRecord({"bytes": Array(dtype="uint8", shape=(len(payload),), stype=STYPE, data=payload)})


def _unwrapped(content: RecordDict) -> bytes:
    array = _record(content, _PAYLOAD, ArrayRecord).get("bytes")
    if array is None or array.stype != STYPE or not isinstance(array.data, bytes):
        raise WireError("the message has no payload")
    return array.data


def _record(content: RecordDict, name: str, kind: type[R]) -> R:
    """The record of this name; an empty one if there is none of this kind.

    Flower's own views of a message (`array_records` and its like) are reference cycles: with them a payload stays in
    memory until Python looks for garbage.
    """
    record = content.get(name)
    return record if isinstance(record, kind) else kind()


def _said(text: str) -> str:
    """What ended a client's work, in its own words; the kind of an error that is not ours goes before them."""
    line = _last_line(text)
    found = _RAISED.fullmatch(line)
    if found is None:
        return line
    return found["said"] if found["module"] == FeddstError.__module__ else f"{found['kind']}: {found['said']}"


def _last_line(text: str) -> str:
    """What a traceback ends with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1][:_LONGEST_REASON] if lines else ""
    return "".join(letter if letter.isprintable() else "?" for letter in last)
