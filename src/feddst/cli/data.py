"""`feddst data show`: which client holds what."""

from dataclasses import dataclass
from pathlib import Path

from feddst.cli.arguments import Arguments
from feddst.cli.places import fresh
from feddst.cli.screen import say, show_table
from feddst.core.keys import LARGEST_SEED
from feddst.data import DataConfig, federate
from feddst.data.show import count_table, save_picture
from feddst.errors import DataError
from feddst.options import option, updated

CLIENTS_SHOWN = 20


@dataclass(frozen=True)
class ShowArguments:
    """What to show and where to draw it."""

    seed: int = option(0, "the partition follows from this", at_least=0, at_most=LARGEST_SEED)
    out: str = option("", "the picture, a PNG file; empty: a new one under runs/")
    data: DataConfig = DataConfig()


def show_command(given: Arguments) -> int:
    """Carry out `feddst data show`."""
    asked = updated(ShowArguments(), given.values)
    picture = Path(asked.out) if asked.out else fresh(f"{asked.data.dataset}-{asked.data.partition}-clients", ".png")
    if picture.exists():
        raise DataError(f"{picture} exists already")
    federation = federate(asked.data, asked.seed)
    print(federation.description)
    show_table(count_table(federation, CLIENTS_SHOWN))
    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot create {picture.parent}: {error.strerror or error}") from None
    save_picture(federation, picture)
    say(f"picture: {picture}")
    return 0
