"""One run: its config, the round loop, checkpoints and metrics."""

from feddst.runtime.anatomy import describe_model
from feddst.runtime.config import CohortConfig, RunConfig
from feddst.runtime.configure import configure
from feddst.runtime.loop import Watcher
from feddst.runtime.metrics import Row, Summary
from feddst.runtime.session import Result, run

__all__ = ["CohortConfig", "Result", "Row", "RunConfig", "Summary", "Watcher", "configure", "describe_model", "run"]
