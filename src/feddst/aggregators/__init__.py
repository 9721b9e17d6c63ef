"""What a round's updates may be added up with, each in a file of its own; the mean is `feddst.core.SparseSum`."""

from feddst.aggregators.coordinate_wise import CoordinateWise
from feddst.aggregators.trimmed_mean import TrimmedMean

__all__ = ["CoordinateWise", "TrimmedMean"]
