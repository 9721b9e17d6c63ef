"""Runs and comparisons: config, the round loop, checkpoints, metrics, tables."""

from feddst.experiment.compare import compare
from feddst.experiment.comparison import CompareConfig, Comparison
from feddst.experiment.config import CohortConfig, RunConfig
from feddst.experiment.configure import configure
from feddst.experiment.metrics import Row, Summary
from feddst.experiment.session import Result, run

__all__ = [
    "CohortConfig",
    "CompareConfig",
    "Comparison",
    "Result",
    "Row",
    "RunConfig",
    "Summary",
    "compare",
    "configure",
    "run",
]
