"""Federated learning with dynamic sparse training.

>>> import feddst
>>> result = feddst.run(feddst.configure(method="feddst", rounds=20))
>>> result.summary.best, result.model
"""

from feddst import early_interrupt, logs  # noqa: F401  the first one before all that takes long to import
from feddst.callbacks import Callback, EarlyStopping
from feddst.clients import optimizers
from feddst.core import register
from feddst.data import Dataset, Federation, federate
from feddst.errors import FeddstError
from feddst.export import Exported, export, load
from feddst.methods import METHODS
from feddst.plugins import load_plugins
from feddst.runtime import Result, Row, RunConfig, Watcher, configure, describe_model, run
from feddst.studies import CompareConfig, Comparison, compare

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "Callback",
    "CompareConfig",
    "Comparison",
    "Dataset",
    "EarlyStopping",
    "Exported",
    "FeddstError",
    "Federation",
    "Result",
    "Row",
    "RunConfig",
    "Watcher",
    "__version__",
    "compare",
    "configure",
    "describe_model",
    "export",
    "federate",
    "load",
    "logs",
    "optimizers",
    "register",
    "run",
]

load_plugins()
