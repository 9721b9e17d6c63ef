"""What a command of the program is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from feddst.cli.arguments import Arguments
from feddst.options import Option


@dataclass(frozen=True)
class Command:
    """A command of the program; `words` is how many words without a name it takes.

    `unneeded` maps options that it lacks, but that a user may expect, to what to do instead.
    """

    usage: str
    summary: str
    options: Callable[[], list[Option]]
    action: Callable[[Arguments], int]
    words: int = 0
    unneeded: Mapping[str, str] = field(default_factory=dict)
