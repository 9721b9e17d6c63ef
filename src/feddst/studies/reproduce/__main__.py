"""`python -m feddst.studies.reproduce` is `feddst reproduce`; it needs nothing but torch and numpy."""

import sys

from feddst.cli.main import main

sys.exit(main(["reproduce", *sys.argv[1:]]))
