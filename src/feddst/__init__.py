"""Federated learning with dynamic sparse training.

>>> import feddst
>>> result = feddst.run(feddst.configure(method="feddst", rounds=20))
>>> result.summary.best, result.model
"""

from feddst import early_interrupt, logs  # noqa: F401  the first one before all that takes long to import
from feddst.clients import optimizers
from feddst.core import register
from feddst.data import Dataset, Federation
from feddst.errors import FeddstError
from feddst.export import Exported, export, load
from feddst.methods import METHODS
from feddst.plugins import load_plugins
from feddst.runtime import Result, RunConfig, configure, run
from feddst.studies import CompareConfig, Comparison, compare

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "CompareConfig",
    "Comparison",
    "Dataset",
    "Exported",
    "FeddstError",
    "Federation",
    "Result",
    "RunConfig",
    "__version__",
    "compare",
    "configure",
    "export",
    "load",
    "logs",
    "optimizers",
    "register",
    "run",
]

load_plugins()
