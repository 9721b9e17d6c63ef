"""Tasks as JSON: written by a server, read by a client that does not trust it."""

import dataclasses
import json
import math
import re
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from feddst.clients import steps  # noqa: F401  registers them
from feddst.core import ClientPlan, ClientStep
from feddst.core.keys import LARGEST_SEED
from feddst.core.step import STEPS
from feddst.errors import OptionError, WireError
from feddst.options import validate
from feddst.wire import ClientTask, Message, WireConfig

MOST_BYTES = 2**20
_NAME = re.compile("[0-9a-z]{1,64}")
_ASKED: Mapping[str, Any] = {"run": str, "client": int, "seed": int, "plan": ClientPlan, "wire": WireConfig}


def write_task(run: str, task: ClientTask) -> str:
    """A task as one line of JSON; equal tasks give equal lines.

    `run` names the run, for what a client stores between rounds.
    """
    asked = {"run": run, **{name: getattr(task, name) for name in _ASKED if name != "run"}}
    return json.dumps(_plain(asked), sort_keys=True, separators=(",", ":"))


def read_task(text: str, message: Message) -> tuple[str, ClientTask]:
    """The run and the task in a text, with its message; raises `WireError` if there is anything else in it."""
    if len(text) > MOST_BYTES:
        raise WireError(f"a task has {len(text)} characters, at most {MOST_BYTES} are read")
    try:
        asked = _entries(json.loads(text), _ASKED, "task")
        run: str = asked.pop("run")
        task = ClientTask(message=message, **asked)
        validate(task.wire)
        task.wire.check()
        validate(task.plan.local)
        for step in task.plan.steps:
            step.check()
    except (ValueError, OverflowError, RecursionError, OptionError) as error:
        raise WireError(f"this task cannot be carried out: {error}") from None
    if not _NAME.fullmatch(run) or not 0 <= task.seed <= LARGEST_SEED or task.client < 0:
        raise WireError(f"a task for client {task.client} of run {run[:40]!r}, seed {task.seed}")
    return run, task


def _plain(value: Any) -> Any:
    if isinstance(value, ClientStep):
        return {"step": value.name, **_fields(value)}
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return value


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _typed(value: Any, kind: Any, name: str) -> Any:
    """A `value` of JSON as the type of an annotation; raises `ValueError` if it does not fit."""
    if kind is ClientStep:
        return _step(value, name)
    if dataclasses.is_dataclass(kind):
        return _record(value, kind, name)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        [one] = [each for each in inner if each is not type(None)]
        return None if value is None else _typed(value, one, name)
    if origin is Literal:
        if value not in inner:
            raise ValueError(f"{name} is {value!r}")
        return value
    if origin in (tuple, frozenset):
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list")
        return origin(_typed(item, inner[0], name) for item in value)
    if origin is not None:
        if not isinstance(value, dict):
            raise ValueError(f"{name} is not a table")
        return {key: _typed(item, inner[1], f"{name}.{key}") for key, item in value.items()}
    return _leaf(value, kind, name)


def _step(value: Any, name: str) -> Any:
    """A step of a kind that is known here."""
    kind = value.get("step") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in STEPS:
        raise ValueError(f"{name} is a step that is not known here: {str(kind)[:40]!r}; install what registers it")
    return _record({key: item for key, item in value.items() if key != "step"}, STEPS[kind], f"{name}.{kind}")


def _record(value: Any, kind: Any, name: str) -> Any:
    hints = _hints(kind)
    return kind(**_entries(value, {field.name: hints[field.name] for field in dataclasses.fields(kind)}, name))


def _entries(value: Any, kinds: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The entries of a table that must have just these, each of its kind."""
    if not isinstance(value, dict) or value.keys() != kinds.keys():
        raise ValueError(f"{name} has other entries than {', '.join(sorted(kinds))}")
    return {key: _typed(item, kinds[key], f"{name}.{key}") for key, item in value.items()}


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _leaf(value: Any, kind: type, name: str) -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{name} is {value!r}")
    return value
