"""What carries out clients' work. `reference` is slow, plain and obviously correct."""

from feddst.engines.base import (
    AnyEngine,
    Assignment,
    Cohort,
    CohortEngine,
    Deliver,
    Engine,
    Evaluation,
    Exam,
    Failure,
    Job,
    Member,
    Outcome,
    Receipt,
    Reply,
    Tally,
)
from feddst.engines.processes import ProcessEngine
from feddst.engines.reference import ReferenceEngine
from feddst.engines.select import ENGINES, EngineConfig, MakeEngine, make_engine, register

__all__ = [
    "ENGINES",
    "AnyEngine",
    "Assignment",
    "Cohort",
    "CohortEngine",
    "Deliver",
    "Engine",
    "EngineConfig",
    "Evaluation",
    "Exam",
    "Failure",
    "Job",
    "MakeEngine",
    "Member",
    "Outcome",
    "ProcessEngine",
    "Receipt",
    "ReferenceEngine",
    "Reply",
    "Tally",
    "make_engine",
    "register",
]
