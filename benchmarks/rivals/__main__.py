"""`python -m rivals NAME JOB REPORT`: carry out a job with the framework of that name."""

import importlib
import sys


def main(name: str, job: str, report: str) -> None:
    importlib.import_module(f".{name}", __package__).main(job, report)


if __name__ == "__main__":
    main(*sys.argv[1:])
