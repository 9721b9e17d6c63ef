"""Rounds on a CPU: `python -m benchmarks.cpu`."""
