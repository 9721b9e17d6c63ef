"""Engines carry out clients' tasks. `reference` is slow, plain and obviously correct."""

from feddst.engines.base import Engine, EvalTask, Evaluation, Sink, results_of
from feddst.engines.processes import ProcessEngine
from feddst.engines.reference import ReferenceEngine
from feddst.engines.select import ENGINES, EngineConfig, EngineKind, make_engine

__all__ = [
    "ENGINES",
    "Engine",
    "EngineConfig",
    "EngineKind",
    "EvalTask",
    "Evaluation",
    "ProcessEngine",
    "ReferenceEngine",
    "Sink",
    "make_engine",
    "results_of",
]
