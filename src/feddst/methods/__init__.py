"""The methods, each a small file that reads like its paper."""

import dataclasses
import inspect
import re
from typing import Any, TypeVar, get_type_hints

from feddst.methods.base import Card, Method
from feddst.methods.fedavg import FedAvg, FedAvgM, FedAvgMServer, ServerMomentum
from feddst.methods.feddst import Ballot, FedDST, FedDSTProx, RandomMaskProx
from feddst.methods.fedopt import (
    Adaptive,
    FedAdagrad,
    FedAdam,
    FedDSTAdagrad,
    FedDSTAdam,
    FedDSTYogi,
    FedYogi,
    RandomMaskAdam,
    SproutAdam,
)
from feddst.methods.fedprox import FedProx
from feddst.methods.lgfedavg import LGFedAvg, SharedLayers
from feddst.methods.lotteryfl import Lottery, LotteryFL
from feddst.methods.oneshot import SNIP, GraSP, OneShot
from feddst.methods.own import OwnGroups
from feddst.methods.prunefl import PruneFL, Reconfiguration
from feddst.methods.randommask import RandomMask
from feddst.methods.signsgd import SignSGD, Votes
from feddst.methods.sprout import Sprout, Sprouting
from feddst.options import flatten

M = TypeVar("M", bound=type[Method])

_NAME = re.compile(r"\w+([+.-]\w+)*")
"""What can be typed in a list of methods, with options of its own after a colon, and be a directory's name."""

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        FedAvg,
        FedAvgM,
        FedAvgMServer,
        FedProx,
        FedAdagrad,
        FedAdam,
        FedYogi,
        RandomMask,
        RandomMaskProx,
        RandomMaskAdam,
        SNIP,
        GraSP,
        PruneFL,
        FedDST,
        FedDSTProx,
        FedDSTAdagrad,
        FedDSTAdam,
        FedDSTYogi,
        Sprout,
        SproutAdam,
        LotteryFL,
        LGFedAvg,
        SignSGD,
    )
}
"""Every method by the name a user types."""


def groups_of(method: type[Method]) -> dict[str, Any]:
    """The dataclass of each of a method's groups of options, by name."""
    hints = get_type_hints(method)
    return {field.name: hints[field.name] for field in dataclasses.fields(method)}


def own_defaults(method: type[Method]) -> dict[str, Any]:
    """The options, by dotted name, of which a method has another default than their groups have."""
    found: dict[str, Any] = {}
    for name, kind in groups_of(method).items():
        own, usual = (flatten(group, f"{name}.") for group in (default_group(method, name, kind), kind()))
        found |= {option: value for option, value in own.items() if value != usual[option]}
    return found


def default_group(method: type[Method], name: str, kind: Any) -> Any:
    """What a group of a method is where nobody has set it."""
    [field] = [field for field in dataclasses.fields(method) if field.name == name]
    if field.default is not dataclasses.MISSING:
        return field.default
    return kind() if field.default_factory is dataclasses.MISSING else field.default_factory()


def register(method: M) -> M:
    """Make a method of your own known under its name, as a decorator of its class.

    Its fields are groups of options: those of other methods, by the same names, or its own, which every run's config
    then has. The default that a field has is the method's own: it counts unless an option is set.
    """
    if not (inspect.isclass(method) and issubclass(method, Method)) or inspect.isabstract(method):
        raise TypeError(f"a method must be a class that implements feddst.methods.Method, got {method!r}")
    missing = [name for name in ("name", "summary", "card") if name not in vars(method)]
    if missing:
        raise TypeError(f"{method.__name__} must say its own {' and '.join(missing)}")
    if not isinstance(method.name, str) or not _NAME.fullmatch(method.name):
        raise ValueError(f"the name of a method must be letters, digits and + - . _ between them, got {method.name!r}")
    if method.name in METHODS:
        raise ValueError(f"a method named {method.name} is registered already: {METHODS[method.name].__name__}")
    known = {name: kind for other in METHODS.values() for name, kind in groups_of(other).items()}
    groups = groups_of(method)
    for name, kind in groups.items():
        if kind is not known.get(name, kind):
            raise ValueError(
                f"{method.__name__}.{name} must be the group {known[name]}, as in other methods, got {kind}"
            )
    OwnGroups.declare({name: kind for name, kind in groups.items() if name not in known})
    METHODS[method.name] = method
    return method


__all__ = [
    "METHODS",
    "SNIP",
    "Adaptive",
    "Ballot",
    "Card",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedAvgMServer",
    "FedDST",
    "FedDSTAdagrad",
    "FedDSTAdam",
    "FedDSTProx",
    "FedDSTYogi",
    "FedProx",
    "FedYogi",
    "GraSP",
    "LGFedAvg",
    "Lottery",
    "LotteryFL",
    "Method",
    "OneShot",
    "OwnGroups",
    "PruneFL",
    "RandomMask",
    "RandomMaskAdam",
    "RandomMaskProx",
    "Reconfiguration",
    "ServerMomentum",
    "SharedLayers",
    "SignSGD",
    "Sprout",
    "SproutAdam",
    "Sprouting",
    "Votes",
    "register",
]
