"""Many runs: comparisons, studies, the paper's tables, and the pictures and tables of them."""

from feddst.studies.compare import compare
from feddst.studies.comparison import CompareConfig, Comparison

__all__ = ["CompareConfig", "Comparison", "compare"]
