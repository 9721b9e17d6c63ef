"""`python -m feddst` is the command line."""

from feddst.cli.main import main

main()
