"""`python -m feddst.cli` is `feddst`."""

import sys

from feddst.cli.main import main

sys.exit(main())
