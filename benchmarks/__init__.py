"""What things cost on this machine, here and in other software: sizes and speeds, measured.

No part of the package: this runs in a checkout (`python -m benchmarks.cpu`, `make bench-cpu`), and may use anything of
feddst, which imports nothing from here.
"""
