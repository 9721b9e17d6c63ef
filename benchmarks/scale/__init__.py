"""The server of many clients: `python -m benchmarks.scale`."""
