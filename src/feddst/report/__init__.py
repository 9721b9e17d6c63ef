"""Reports on runs: one HTML page that needs nothing else, or figures for a paper."""

from feddst.report.document import write_report
from feddst.report.figures import write_figures

__all__ = ["write_figures", "write_report"]
