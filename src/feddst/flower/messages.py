"""Flower messages: payloads of our wire format, which Flower carries without looking into them."""

import re
from dataclasses import dataclass
from typing import TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from feddst.errors import FeddstError, WireError
from feddst.flower.tasks import read_task, write_task
from feddst.wire import ClientResult, ClientTask
from feddst.wire import Message as WireMessage

TRAIN, HELLO = "train.feddst", "query.feddst"
"""The types of the messages that ask for an update, and for an introduction."""

STYPE = "feddst.v1"
"""The serialisation that Flower is told of: one that it does not know."""

R = TypeVar("R", ArrayRecord, ConfigRecord, MetricRecord)

OTHER_CLIENT = "this task is for client"
"""How the error of a node begins that was sent another client's task."""

_RAISED = re.compile(r"<class '(?P<module>[\w.]*?)\.?(?P<kind>\w+)'>:<'(?P<said>.*?)(?:'>)?")
"""How Flower says what a client app has raised; a long one is cut off."""
_PAYLOAD, _TASK, _METRICS, _DIVERGED = "payload", "task", "metrics", "diverged"
_LONGEST_REASON = 300
_LARGEST_LOSS = 1e30
"""Losses are only averaged, which should not overflow."""


@dataclass(frozen=True)
class Introduction:
    """A node's introduction: which client it is, and how many images it has."""

    client: int
    images: int


def task_message(node: int, run: str, task: ClientTask, ttl: float) -> Message:
    """A client's task with its broadcast, for one node."""
    content = RecordDict(
        {_PAYLOAD: _wrapped(task.message.payload), _TASK: ConfigRecord({"json": write_task(run, task)})}
    )
    return Message(content, node, TRAIN, ttl=ttl)


def read_task_message(message: Message) -> tuple[str, ClientTask]:
    """The run and the task of such a message, whose data are not in it; raises `WireError`."""
    text = _record(message.content, _TASK, ConfigRecord).get("json")
    if not isinstance(text, str):
        raise WireError("the message has no task")
    return read_task(text, WireMessage(_unwrapped(message.content)))


def answer_message(message: Message, result: ClientResult) -> Message:
    """A client's answer; one that has diverged says only that, so that it is told apart from one that fails."""
    if result.payload is None:
        return Message(RecordDict({_DIVERGED: ConfigRecord({"reason": result.failure})}), reply_to=message)
    content = RecordDict({_PAYLOAD: _wrapped(result.payload), _METRICS: MetricRecord({"loss": result.loss})})
    return Message(content, reply_to=message)


def read_answer(message: Message) -> ClientResult:
    """A client's result, which is not trusted: its payload is still to be decoded, or it says why there is none."""
    if message.has_error():
        reason = message.error.reason or f"error {message.error.code}"
        return ClientResult.failed(f"the client failed: {_said(reason)}")
    diverged = _record(message.content, _DIVERGED, ConfigRecord).get("reason")
    if isinstance(diverged, str):
        reason = _last_line(diverged) or "the client diverged"
        return ClientResult.failed(reason, size=size_of(message), diverged=True)
    try:
        payload = _unwrapped(message.content)
    except WireError as error:
        return ClientResult.failed(str(error), size=size_of(message))
    loss = _record(message.content, _METRICS, MetricRecord).get("loss")
    if not isinstance(loss, float) or not abs(loss) < _LARGEST_LOSS:
        return ClientResult.failed(f"its loss is {str(loss)[:40]}", size=len(payload))
    return ClientResult(payload, loss=loss)


def size_of(message: Message) -> int:
    """The bytes of a message that are not Flower's."""
    records = message.content.values() if message.has_content() else ()
    return sum(len(array.data) for record in records if isinstance(record, ArrayRecord) for array in record.values())


def hello_message(node: int, ttl: float) -> Message:
    """Asks a node which client it is."""
    return Message(RecordDict(), node, HELLO, ttl=ttl)


def introduction_message(message: Message, introduction: Introduction) -> Message:
    """The answer to a hello message."""
    record = MetricRecord({name: getattr(introduction, name) for name in ("client", "images")})
    return Message(RecordDict({_METRICS: record}), reply_to=message)


def read_introduction(message: Message) -> Introduction:
    """A node's introduction; raises `WireError` with the reason if there is none."""
    if message.has_error():
        raise WireError(_said(message.error.reason or f"error {message.error.code}"))
    record = _record(message.content, _METRICS, MetricRecord)
    values = [record.get(name) for name in ("client", "images")]
    whole = [value for value in values if type(value) is int and value >= 0]
    if len(whole) != 2:
        raise WireError("it does not speak feddst")
    return Introduction(*whole)


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
    """The error message that ended a client's work, after the error's type if it is not one of ours."""
    line = _last_line(text)
    found = _RAISED.fullmatch(line)
    if found is None:
        return line
    return found["said"] if found["module"] == FeddstError.__module__ else f"{found['kind']}: {found['said']}"


def _last_line(text: str) -> str:
    """The last line of a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1][:_LONGEST_REASON] if lines else ""
    return "".join(letter if letter.isprintable() else "?" for letter in last)
