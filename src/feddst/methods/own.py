"""Groups of options that methods from elsewhere bring with them."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from feddst.options import OpenGroups, options_of


@dataclasses.dataclass(frozen=True)
class OwnGroups(OpenGroups):
    """The groups of registered methods, in every run's config. `reserved` are names that mean something else there."""

    kinds: ClassVar[dict[str, type]] = {}
    reserved: ClassVar[set[str]] = set()

    @classmethod
    def declare(cls, groups: Mapping[str, Any]) -> None:
        """Add groups, dataclasses whose fields are made by `feddst.options.option`: all of them, or none."""
        for name, kind in groups.items():
            if name in cls.reserved:
                raise ValueError(f"a group of options cannot be called {name}: a run has something else of that name")
            if not isinstance(kind, type) or not dataclasses.is_dataclass(kind) or not options_of(kind):
                raise TypeError(f"the group {name} must be a dataclass of feddst.options.option, got {kind!r}")
        cls.kinds |= groups
