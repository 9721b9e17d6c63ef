"""What was measured on a GPU, as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu.contestants import TITLES
from benchmarks.gpu.jobs import SPARSITY, STEPS
from benchmarks.gpu.measure import GpuRecord
from benchmarks.gpu.products import SIZE
from benchmarks.gpu.targets import verdicts
from benchmarks.gpu.turns import StepRow
from benchmarks.tables import Table, paragraphs
from benchmarks.targets import target_table
from feddst.runtime.wording import counted, percent

NONE = "–"
_HEADING = (
    *("network", "images", "runner", "median ms", "min ms", "max ms", "× feddst"),
    *("GFLOP", "TFLOP/s", "of GEMM", "differs", "ready in s"),
)
_WORDS = {"tf32": "TF32", "float32": "float32"}


def tables(record: GpuRecord) -> list[Table]:
    """All tables."""
    targets = target_table("What the stacked engine was designed for, by the medians below.", verdicts(record))
    steps = [_HEADING, *(_line(record, row) for row in record.rows)]
    return [targets, Table("Steps", _caption(record), steps, columns=_columns(record))]


def remarks(record: GpuRecord) -> list[str]:
    """Which contestants failed, and why."""
    return [
        f"failed: {row.network}, {row.images} images, {TITLES[row.runner]}: {row.failure}"
        for row in record.rows
        if row.failure
    ]


def markdown(record: GpuRecord, about: dict[str, Any]) -> str:
    """A page with all tables; `about` is the record as JSON."""
    place = ", ".join(f"{name} {value}" for name, value in about["machine"].items() if name != "gpu")
    heading = (
        f"Made by `{about['command']}` in {about['seconds']:.0f} s, commit {about['commit'] or 'unknown'}, "
        f"on {record.gpu} ({place})."
    )
    use = "Use this page to see how fast many models train side by side on a GPU. In short: [speed](speed.md)."
    return "\n\n".join(["# What a training step costs on a GPU", use, heading, *paragraphs(tables(record))]) + "\n"


def _caption(record: GpuRecord) -> str:
    bench = record.bench
    return (
        f"Milliseconds of one step of {counted(bench.models, 'model')}, each with its own weights, masks (S = "
        f"{SPARSITY.level:g}, ERK) and images: choosing the images, forward, backward, masked SGD with momentum and "
        f"L2. Matrix products are in {_WORDS[bench.precision]}. Runners take turns, {bench.repeats} each; a turn is "
        f"{STEPS} steps (one, if models go one after another) by the wall clock, with launches and copies."
    )


def _columns(record: GpuRecord) -> Mapping[str, str]:
    gemm = record.gemm
    return {
        "runner": "feddst is the stacked engine, with what it needs to plan steps; one model after another is plain "
        "PyTorch; vmap is `torch.func.vmap`, and grouped is convolutions with a group for each model and batched "
        "products, both by `torch.compile` in a CUDA graph with cuDNN's fastest algorithms.",
        "× feddst": "how many times as long as ours, by medians.",
        "GFLOP": "convolutions and linear layers as if no weight were masked: two for each multiply-add of outputs, "
        "weights' gradients and inputs' gradients (the first layer has none).",
        "of GEMM": f"the share of the rate of {SIZE}³ matrix products in the same run, {gemm.median('tf32'):,.0f} "
        f"TFLOP/s in TF32 and {gemm.median('float32'):,.0f} in float32.",
        "differs": "the largest difference of a weight from ours after one step, as a share of the largest change.",
        "ready in s": "with compiling and warming up.",
    }


def _line(record: GpuRecord, row: StepRow) -> Sequence[str]:
    who = (row.network, str(row.images), TITLES[row.runner])
    if not row.laps:
        return (*who, "failed", *[NONE] * (len(_HEADING) - len(who) - 1))
    ratio = record.ratio(row)
    return (
        *who,
        *(f"{1e3 * seconds:.2f}" for seconds in (row.median, min(row.laps), max(row.laps))),
        NONE if ratio is None else f"{ratio:.2f}",
        f"{row.flops / 1e9:.2f}",
        f"{row.tflops:.2f}",
        percent(record.share(row)),
        NONE if row.difference is None else percent(row.difference, 2),
        f"{row.prepared:.0f}",
    )
