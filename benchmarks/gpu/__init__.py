"""Training steps on a GPU: `python -m benchmarks.gpu`."""
