"""What a command of the program is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from feddst.cli.arguments import Arguments
from feddst.options import Option


@dataclass(frozen=True)
class Command:
    """One of the things the program does; `words` is how many words without a name it takes.

    `unneeded` says for options that it does without, but that a user may expect, what to do instead.
    """

    usage: str
    summary: str
    options: Callable[[], list[Option]]
    action: Callable[[Arguments], int]
    words: int = 0
    unneeded: Mapping[str, str] = field(default_factory=dict)
