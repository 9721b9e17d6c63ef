"""`feddst report`: runs as a page to read, or as figures for a paper."""

import sys
from dataclasses import dataclass
from typing import Literal

from feddst.cli.arguments import Arguments
from feddst.cli.screen import say
from feddst.options import option, updated
from feddst.report import write_figures, write_report
from feddst.report.document import is_report, report_path
from feddst.report.sources import as_paths

ANY_NUMBER = sys.maxsize
"""So many runs may be named."""


@dataclass(frozen=True)
class ReportArguments:
    """What the report is and where it goes."""

    out: str = option(
        "",
        "html: the file, or a directory for report.html; figures: a directory; empty: report.html or report-figures/ "
        "in RUN if there is one, else here; only what an earlier report wrote is replaced",
    )
    format: Literal["html", "png", "svg", "pdf"] = option(
        "html", "html: one page that needs nothing else; png, svg, pdf: figures for a two-column paper"
    )


def report_command(given: Arguments) -> int:
    """Carry out `feddst report`."""
    asked = updated(ReportArguments(), given.values)
    paths, out = as_paths(given.words), asked.out or None
    if asked.format != "html":
        for figure in write_figures(paths, out, asked.format):
            print(figure)
        return 0
    replaced = is_report(report_path(paths, out))
    print(write_report(paths, out))
    if replaced:
        say("it replaces an earlier report")
    return 0
