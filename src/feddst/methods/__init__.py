"""The methods, each a small file that reads like its paper."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_type_hints

from feddst.core import Registry
from feddst.core.plan import idle_training
from feddst.methods.base import Card, Method
from feddst.methods.fedavg import FedAvg, FedAvgM, FedAvgMServer
from feddst.methods.feddst import FedDST, MaskMerge
from feddst.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from feddst.methods.fedprox import FedProx
from feddst.methods.lgfedavg import LGFedAvg, SharedLayers
from feddst.methods.lotteryfl import Lottery, LotteryFL
from feddst.methods.nested import NestedMask, Tiers
from feddst.methods.oneshot import SNIP, GraSP, OneShot
from feddst.methods.own import OwnGroups
from feddst.methods.prunefl import PruneFL, Reconfiguration
from feddst.methods.randommask import RandomMask
from feddst.methods.server import Adaptive, ServerOptimizer
from feddst.methods.signsgd import SignSGD, Votes
from feddst.methods.sprout import Sprout, Sprouting
from feddst.options import flatten

_NAME = re.compile(r"\w+([+.-]\w+)*")
"""Names that can be typed in a list of methods, with options after a colon, and be a directory's name."""


def groups_of(method: type[Method]) -> dict[str, Any]:
    """The dataclass of each of a method's groups of options, by name."""
    hints = get_type_hints(method)
    return {field.name: hints[field.name] for field in dataclasses.fields(method)}


@cache
def own_defaults(method: type[Method]) -> Mapping[str, Any]:
    """The method's own defaults, by dotted name, where they differ from those of their groups."""
    found: dict[str, Any] = {}
    for name, kind in groups_of(method).items():
        own, usual = (flatten(group, f"{name}.") for group in (default_group(method, name, kind), kind()))
        found |= {option: value for option, value in own.items() if value != usual[option]}
    return found


def default_group(method: type[Method], name: str, kind: Any) -> Any:
    """The default of one of a method's groups of options."""
    [field] = [field for field in dataclasses.fields(method) if field.name == name]
    if field.default is not dataclasses.MISSING:
        return field.default
    return kind() if field.default_factory is dataclasses.MISSING else field.default_factory()


def why_idle(method: type[Method], values: Mapping[str, Any]) -> Callable[[str], str | None]:
    """A function that says why an option does nothing for a method with these values.

    It returns an empty text if only other methods have the option, None if it has an effect or is no method's.
    """
    own, *others = ({field.name for field in dataclasses.fields(one)} for one in (method, *METHODS.values()))
    values = {**values, **method.pins}
    reasons = dict.fromkeys(set[str]().union(*others) - own, "") | idle_training(values) | dict(method.idle(values))
    return lambda option: reasons.get(option, reasons.get(option.partition(".")[0]))


class Methods(Registry[type[Method]]):
    """The registry of methods; the groups of options that are their fields are in every run's config."""

    def admit(self, item: Any) -> None:
        """Check a method and its fields: groups that other methods have by the same names, or new ones.

        The default of a field is the method's own: it holds unless an option is set.
        """
        if not (inspect.isclass(item) and issubclass(item, Method)) or inspect.isabstract(item):
            raise TypeError(f"a method must be a class that implements feddst.methods.Method, got {item!r}")
        missing = [name for name in ("name", "summary", "card") if name not in vars(item)]
        if missing:
            raise TypeError(f"{item.__name__} must say its own {' and '.join(missing)}")
        if not isinstance(item.name, str) or not _NAME.fullmatch(item.name):
            raise ValueError(
                f"the name of a method must be letters, digits and + - . _ between them, got {item.name!r}"
            )
        if item.name in self:
            raise ValueError(f"a method named {item.name} is registered already: {self[item.name].__name__}")
        known = {name: kind for other in self.values() for name, kind in groups_of(other).items()}
        groups = groups_of(item)
        for name, kind in groups.items():
            if kind is not known.get(name, kind):
                raise ValueError(
                    f"{item.__name__}.{name} must be the group {known[name]}, as in other methods, got {kind}"
                )
        OwnGroups.declare({name: kind for name, kind in groups.items() if name not in known})


METHODS = Methods("method", Method, classes=True)
"""Every method by the name a user types."""
Method.registry = METHODS
METHODS.update(
    (method.name, method)
    for method in (
        FedAvg,
        FedAvgM,
        FedAvgMServer,
        FedProx,
        FedAdagrad,
        FedAdam,
        FedYogi,
        RandomMask,
        NestedMask,
        SNIP,
        GraSP,
        PruneFL,
        FedDST,
        Sprout,
        LotteryFL,
        LGFedAvg,
        SignSGD,
    )
)


__all__ = [
    "METHODS",
    "SNIP",
    "Adaptive",
    "Card",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedAvgMServer",
    "FedDST",
    "FedProx",
    "FedYogi",
    "GraSP",
    "LGFedAvg",
    "Lottery",
    "LotteryFL",
    "MaskMerge",
    "Method",
    "NestedMask",
    "OneShot",
    "OwnGroups",
    "PruneFL",
    "RandomMask",
    "Reconfiguration",
    "ServerOptimizer",
    "SharedLayers",
    "SignSGD",
    "Sprout",
    "Sprouting",
    "Tiers",
    "Votes",
    "why_idle",
]
