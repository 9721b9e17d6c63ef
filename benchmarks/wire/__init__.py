"""Models on the wire: `python -m benchmarks.wire`."""
