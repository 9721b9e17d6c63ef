"""Registries: the built-in things of each kind, and those that others add, by name."""

from inspect import isabstract, isclass
from typing import Any, Generic, TypeVar

from feddst.errors import OptionError
from feddst.options import hint, one_of

T = TypeVar("T")
A = TypeVar("A")


class Registry(dict[str, T], Generic[T]):
    """Everything of one kind, by the name that a user types.

    A kind has a base class, whose attribute `registry` is this. With `classes` it keeps classes, otherwise objects: a
    registered class is then called without arguments. If it `travels`, worker processes get its objects too. What
    `stands_in` for something that is not here gives way to it.
    """

    def __init__(self, what: str, base: type[Any], *, classes: bool = False, travels: bool = False) -> None:
        super().__init__()
        self.what = what
        self.base = base
        self.classes = classes
        if travels:
            _TRAVELLING.append(self)

    def register(self, item: A) -> A:
        """Register a class or an object under its `name`."""
        kept: Any = item() if isclass(item) and not self.classes and not isabstract(item) else item
        self.admit(kept)
        if not isinstance(name := getattr(kept, "name", None), str) or not name:
            raise TypeError(f"the name of {self._one} must be text, got {name!r}")
        known: Any = self.get(name)
        if known is not None and not getattr(known, "stands_in", False):
            kind = known if isclass(known) else type(known)
            raise ValueError(f"{self._one} named {name} is registered already: {kind.__name__}")
        self[name] = kept
        return item

    def admit(self, item: Any) -> None:
        """Raise if this item is not of the kind."""
        fits = isclass(item) and issubclass(item, self.base) if self.classes else isinstance(item, self.base)
        if not fits or isabstract(item):
            raise TypeError(f"{self._one} must be a class that implements {self.base.__name__}, got {item!r}")

    def named(self, name: str, option: str) -> T:
        """The item that an option names; raises `OptionError` with the nearest name."""
        if name not in self:
            raise OptionError(f"{option} must be {one_of(self)}, got {name!r}{hint(name, self)}")
        return self[name]

    @property
    def _one(self) -> str:
        return f"{'an' if self.what[0] in 'aeiou' else 'a'} {self.what}"


_TRAVELLING: list[Registry[Any]] = []


def known_here() -> list[tuple[Any, ...]]:
    """The objects that worker processes must know as well."""
    return [tuple(registry.values()) for registry in _TRAVELLING]


def learn(known: list[tuple[Any, ...]]) -> None:
    """Register what the parent process has registered."""
    for registry, objects in zip(_TRAVELLING, known, strict=True):
        for one in objects:
            registry.setdefault(one.name, one)


def same_class(one: object, other: object) -> bool:
    """Whether two objects are of one class, or of a class that was defined anew, as by a notebook's cell."""
    mine, theirs = type(one), type(other)
    return (mine.__module__, mine.__qualname__) == (theirs.__module__, theirs.__qualname__)


def register(item: A) -> A:
    """Register something of your own under its `name`: a class, as its decorator, or an object.

    It is a `Method`, `ClientStep`, `Objective`, `LocalOptimizer`, `Schedule`, `Aggregator`, `DataSource`, `ValueCodec`,
    `EngineKind` or `Log`. Both ends of a network must register it; a plugin does so wherever `feddst` is imported.
    """
    registry = getattr(item, "registry", None)
    if not isinstance(registry, Registry):
        raise TypeError(f"what is registered must implement a base class of feddst, such as Method, got {item!r}")
    return registry.register(item)
