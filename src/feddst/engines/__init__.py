"""What carries out clients' work. `reference` is slow, plain and obviously correct."""

from feddst.engines.base import (
    AnyEngine,
    Cohort,
    CohortEngine,
    Deliver,
    Engine,
    Evaluation,
    Exam,
    Member,
    Receipt,
    Tally,
)
from feddst.engines.processes import ProcessEngine
from feddst.engines.reference import ReferenceEngine
from feddst.engines.select import ENGINES, EngineConfig, EngineKind, make_engine

__all__ = [
    "ENGINES",
    "AnyEngine",
    "Cohort",
    "CohortEngine",
    "Deliver",
    "Engine",
    "EngineConfig",
    "EngineKind",
    "Evaluation",
    "Exam",
    "Member",
    "ProcessEngine",
    "Receipt",
    "ReferenceEngine",
    "Tally",
    "make_engine",
]
