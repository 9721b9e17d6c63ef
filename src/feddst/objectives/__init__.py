"""Objectives, each kind of task in a file of its own."""

from feddst.objectives.binary import Binary, MultiLabel
from feddst.objectives.cross_entropy import CrossEntropy, Segmentation, Tokens
from feddst.objectives.function import FunctionObjective, MissingObjective, WithMetrics, as_metric, objective_from
from feddst.objectives.regression import AbsoluteError, Huber, SquaredError

__all__ = [
    "AbsoluteError",
    "Binary",
    "CrossEntropy",
    "FunctionObjective",
    "Huber",
    "MissingObjective",
    "MultiLabel",
    "Segmentation",
    "SquaredError",
    "Tokens",
    "WithMetrics",
    "as_metric",
    "objective_from",
]
