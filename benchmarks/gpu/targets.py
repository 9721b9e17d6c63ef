"""What the stacked engine was designed for, and whether it is so."""

from benchmarks.gpu.measure import GpuRecord
from benchmarks.targets import Verdict

NETWORK, MODELS, IMAGES = "mnist-cnn", 200, 32
MILLISECONDS = ((4.0, ""), (2.5, " (stretch)"))
"""How long a step is to take at most, and what kind of target that is."""


def verdicts(record: GpuRecord) -> list[Verdict]:
    """All targets."""
    row = record.ours(NETWORK, IMAGES)
    measured = row is not None and row.laps and row.models == MODELS and "H200" in record.gpu
    found = f"{1e3 * row.median:.2f} ms on {record.gpu}" if row is not None and measured else ""
    return [
        Verdict(
            NETWORK,
            f"{MODELS} models, {IMAGES} images: at most {most:g} ms a step on an H200{kind}",
            1e3 * row.median <= most if row is not None and measured else None,
            found,
        )
        for most, kind in MILLISECONDS
    ]
