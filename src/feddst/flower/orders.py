"""What a client is told beside the broadcast, as JSON: written by a server, read by a client that does not trust it."""

import dataclasses
import json
import math
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from feddst.clients import steps  # noqa: F401  makes them known
from feddst.core import ClientPlan, ClientStep
from feddst.core.keys import LARGEST_SEED
from feddst.core.step import STEPS
from feddst.errors import OptionError, WireError
from feddst.options import validate
from feddst.wire import WireConfig

MOST_BYTES = 2**20
_NAME = re.compile("[0-9a-z]{1,64}")


@dataclass(frozen=True)
class Orders:
    """`run` names the run, for what a client keeps from one round to the next; see `Assignment` for the rest."""

    run: str
    client: int
    seed: int
    plan: ClientPlan
    wire: WireConfig


def write_orders(orders: Orders) -> str:
    """Orders as one line of JSON; equal orders give equal lines."""
    return json.dumps(_plain(orders), sort_keys=True, separators=(",", ":"))


def read_orders(text: str) -> Orders:
    """The orders in a text; raises `WireError` if there is anything else in it."""
    if len(text) > MOST_BYTES:
        raise WireError(f"orders have {len(text)} characters, at most {MOST_BYTES} are read")
    try:
        orders = _typed(json.loads(text), Orders, "orders")
        validate(orders.wire)
        orders.wire.check()
        validate(orders.plan.local)
        for step in orders.plan.steps:
            step.check()
    except (ValueError, OverflowError, RecursionError, OptionError) as error:
        raise WireError(f"these orders cannot be carried out: {error}") from None
    assert isinstance(orders, Orders)
    if not _NAME.fullmatch(orders.run) or not 0 <= orders.seed <= LARGEST_SEED or orders.client < 0:
        raise WireError(f"orders for client {orders.client} of run {orders.run[:40]!r}, seed {orders.seed}")
    return orders


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
    """`value`, as JSON has it, as what a type annotation says it is; raises `ValueError` if it is not."""
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
        raise ValueError(f"{name} is a step that is not known here: {str(kind)[:40]!r}")
    return _record({key: item for key, item in value.items() if key != "step"}, STEPS[kind], f"{name}.{kind}")


def _record(value: Any, kind: Any, name: str) -> Any:
    hints = _hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    if not isinstance(value, dict) or value.keys() != names:
        raise ValueError(f"{name} has other entries than {', '.join(sorted(names))}")
    return kind(**{key: _typed(item, hints[key], f"{name}.{key}") for key, item in value.items()})


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _leaf(value: Any, kind: type, name: str) -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{name} is {value!r}")
    return value
