"""Groups of options that methods from elsewhere bring with them."""

import dataclasses
from typing import ClassVar

from feddst.options import OpenGroups, options_of


@dataclasses.dataclass(frozen=True)
class OwnGroups(OpenGroups):
    """The groups of registered methods, in every run's config. `reserved` are names that mean something else there."""

    kinds: ClassVar[dict[str, type]] = {}
    reserved: ClassVar[set[str]] = set()

    @classmethod
    def declare(cls, name: str, kind: object) -> None:
        """Add a group, a dataclass whose fields are made by `feddst.options.option`."""
        if name in cls.reserved:
            raise ValueError(f"a group of options cannot be called {name}: a run has something else of that name")
        if not isinstance(kind, type) or not dataclasses.is_dataclass(kind) or not options_of(kind):
            raise TypeError(f"the group {name} must be a dataclass of feddst.options.option, got {kind!r}")
        cls.kinds[name] = kind
