"""What carries out clients' work. `reference` is slow, plain and obviously correct."""

from feddst.engines.base import Assignment, Deliver, Engine, Evaluation, Exam, Job, Outcome, Reply
from feddst.engines.processes import ProcessEngine
from feddst.engines.reference import ReferenceEngine
from feddst.engines.select import EngineConfig, make_engine

__all__ = [
    "Assignment",
    "Deliver",
    "Engine",
    "EngineConfig",
    "Evaluation",
    "Exam",
    "Job",
    "Outcome",
    "ProcessEngine",
    "ReferenceEngine",
    "Reply",
    "make_engine",
]
