"""Options of a Flower server beyond those of the run."""

from dataclasses import dataclass

from feddst.options import option

Value = bool | float | int | str
"""What a run config or a node config of Flower can hold."""


@dataclass(frozen=True)
class FlowerConfig:
    """How long a server waits, and for whom."""

    deadline: float = option(600.0, "seconds a round may last; what has not come by then is left out", above=0)
    spare: int = option(
        0, "clients asked in a round beyond cohort.size; it ends when cohort.size have answered", at_least=0
    )
    wait: float = option(
        120.0, "seconds to wait for all clients at the beginning, before going on with some", at_least=0
    )
    failures: int = option(3, "failures in a row after which a client is left out for a while", at_least=1)
    most_images: int = option(
        10**6,
        "images that a client may say it has, by which it is weighed; nodes that claim more are left out",
        at_least=1,
    )
    rest: int = option(10, "rounds for which such a client is left out", at_least=0)
