"""Objectives, each in a file of its own."""

from feddst.objectives.cross_entropy import CrossEntropy
from feddst.objectives.mean_squared_error import MeanSquaredError

__all__ = ["CrossEntropy", "MeanSquaredError"]
