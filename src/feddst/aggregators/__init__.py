"""Aggregators, each in a file of its own; the mean is `feddst.core.SparseSum`."""

from feddst.aggregators.coordinate_wise import CoordinateWise
from feddst.aggregators.trimmed_mean import TrimmedMean

__all__ = ["CoordinateWise", "TrimmedMean"]
