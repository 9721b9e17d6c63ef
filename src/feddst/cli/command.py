"""What a command of the program is."""

from collections.abc import Callable
from dataclasses import dataclass

from feddst.cli.arguments import Arguments
from feddst.options import Option


@dataclass(frozen=True)
class Command:
    """One of the things the program does; `words` is how many words without a name it takes."""

    usage: str
    summary: str
    options: Callable[[], list[Option]]
    action: Callable[[Arguments], int]
    words: int = 0
