"""What can go wrong, each as one line a user can act on.

The command line prints the message and exits with code 2; the Python API raises.
"""


class FeddstError(Exception):
    """Base of every error this package raises on purpose."""


class OptionError(FeddstError):
    """An option has a value that is not allowed, or does not exist."""


class DataError(FeddstError):
    """A data set is missing, damaged, or cannot be split as asked."""


class ModelError(FeddstError):
    """A model cannot be federated as asked."""


class TrainingError(FeddstError):
    """Training cannot go on."""


class DivergenceError(TrainingError):
    """A client's training has diverged: what it holds or sends is not finite, or far too large."""


class CheckpointError(FeddstError):
    """A run cannot be written, or continued from what is on disk."""


class DamageError(CheckpointError):
    """A run's file is not as it was written."""


class WireError(FeddstError):
    """Bytes that came over the wire are damaged, or not what was asked for."""


class ExcessError(WireError):
    """An update holds what an honest client sends only once its training has diverged."""


class FlowerError(FeddstError):
    """Flower is missing, or a federation under it cannot be begun or gone on with."""


class AuditError(FeddstError):
    """What was counted or added up without being sent differs from what was sent: a bug in this package."""


class UnsupportedModelError(Exception):
    """The module is not a chain of layers that the kernels know; says which layer is the reason."""
