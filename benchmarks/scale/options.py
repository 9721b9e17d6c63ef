"""The options of the scale bench, which do not need Flower."""

from dataclasses import dataclass

from benchmarks.scale.memory import forget_peak
from benchmarks.wire.updates import NetworkName
from feddst.core.keys import LARGEST_SEED
from feddst.errors import OptionError
from feddst.options import check_list, one_of, option
from feddst.wire import general_codecs


@dataclass(frozen=True)
class ScaleBench:
    """What to measure."""

    networks: tuple[NetworkName, ...] = option(("mnist-cnn", "cifar10-cnn"), "whose rounds to measure")
    codecs: tuple[str, ...] = option(("float32", "q4"), "how the values of updates travel")
    clients: tuple[int, ...] = option((10, 30, 100, 300, 1000), "clients in a round", at_least=1)
    level: float = option(0.8, "sparsity S", above=0, below=1)
    rounds: int = option(3, "timed rounds of each; in all but the first clients hold a mask already", at_least=1)
    seed: int = option(0, "weights, masks and made-up updates follow from this", at_least=0, at_most=LARGEST_SEED)

    def check(self) -> None:
        """Raise `OptionError` if there is nothing to measure, or memory cannot be measured here."""
        for name in ("networks", "codecs", "clients"):
            check_list(name, getattr(self, name))
        for codec in self.codecs:
            if codec not in general_codecs():
                raise OptionError(f"codecs must be {one_of(general_codecs())}, got {codec!r}")
        forget_peak()
