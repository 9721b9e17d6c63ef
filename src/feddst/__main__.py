"""`python -m feddst` is the program `feddst`."""

import sys

from feddst.cli.main import main

sys.exit(main())
