"""Rounds here, in plain PyTorch and in other frameworks: `python -m benchmarks.peers`."""
