"""`python -m feddst.studies.reproduce.redraw FOLDER …` makes tables and figures again from records."""

import sys
from pathlib import Path

from feddst.errors import FeddstError
from feddst.studies.reproduce.carry_out import write_reports
from feddst.studies.reproduce.record import load_record


def main(folders: list[str]) -> int:
    """Make the reports of each folder again; returns an exit code."""
    try:
        for folder in map(Path, folders):
            write_reports(load_record(folder), folder)
    except FeddstError as error:
        print(f"redraw: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
