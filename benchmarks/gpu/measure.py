"""Training steps on a GPU: the stacked engine's, beside what PyTorch can do and what the chip's products reach."""

import gc
import importlib.metadata
import importlib.util
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.gpu.contestants import RivalName, RunnerName, make_contestant
from benchmarks.gpu.jobs import ChainName, make_job
from benchmarks.gpu.products import GpuGemm, Precision, gemm_rate, library_settings
from benchmarks.gpu.turns import StepRow, Tell, play
from feddst.errors import OptionError
from feddst.options import check_list, option
from feddst.runtime.machine import commit, machine

_FORMAT = 1


@dataclass(frozen=True)
class GpuBench:
    """What to measure."""

    networks: tuple[ChainName, ...] = option(("mnist-cnn", "cifar10-cnn"), "the paper's networks to train")
    models: int = option(200, "M: models side by side", at_least=1)
    images: tuple[int, ...] = option((32, 8), "images of a model in a step", at_least=1)
    against: tuple[RivalName, ...] = option(
        ("single", "vmap", "grouped"),
        "with PyTorch: one model after another; vmap, or grouped convolutions, compiled and in a CUDA graph",
    )
    precision: Precision = option("tf32", "matrix products with 11 bits of precision, or with all of float32's")
    repeats: int = option(10, "how often each has its turn", at_least=1)

    def check(self) -> None:
        """Raise `OptionError` if there is nothing to measure, or nothing to measure it with."""
        for name in ("networks", "images", *(["against"] if self.against else [])):
            check_list(name, getattr(self, name))
        if why_not():
            raise OptionError(f"bench gpu needs an NVIDIA GPU, PyTorch with CUDA, and Triton, but {why_not()}")


def why_not() -> str:
    """Why nothing can be measured on this machine; empty if it can."""
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} was built without CUDA"
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU here"
    return "" if importlib.util.find_spec("triton") else "triton is not installed"


@dataclass(frozen=True)
class GpuRecord:
    """All that was measured; of each job, our row is the first."""

    bench: GpuBench
    gpu: str
    gemm: GpuGemm
    rows: tuple[StepRow, ...]
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether a contestant failed."""
        return any(row.failure for row in self.rows)

    def share(self, row: StepRow) -> float:
        """Of the rate of matrix products with the same precision."""
        return row.tflops / self.gemm.median(self.bench.precision)

    def ratio(self, row: StepRow) -> float | None:
        """How many times as long as ours a step takes; None if ours took none."""
        ours = self.ours(row.network, row.images)
        return row.median / ours.median if ours is not None and ours.laps else None

    def ours(self, network: str, images: int) -> StepRow | None:
        """Our row of a job, if there is one."""
        same = [row for row in self.rows if (row.network, row.images, row.runner) == (network, images, "feddst")]
        return same[0] if same else None

    def as_json(self, command: str) -> dict[str, Any]:
        """Everything, with where and how it was made. What failed is named, its message left out: it may hold paths."""
        return {
            "format": _FORMAT,
            "command": command,
            "commit": commit(),
            "machine": gpu_machine(self.gpu),
            "models": self.bench.models,
            "precision": self.bench.precision,
            "seconds": round(self.seconds, 1),
            "gemm_tflops": asdict(self.gemm) | {"median": self.gemm.median(self.bench.precision)},
            "steps": [self._as_json(row) for row in self.rows],
        }

    def _as_json(self, row: StepRow) -> dict[str, Any]:
        about = asdict(row) | {"failure": bool(row.failure)}
        if not row.laps:
            return about
        return about | {
            "median": row.median,
            "shortest": min(row.laps),
            "longest": max(row.laps),
            "tflops": row.tflops,
            "share": self.share(row),
            "ratio": self.ratio(row),
        }


def measure(bench: GpuBench, tell: Tell) -> GpuRecord:
    """Measure it all on CUDA's current device; `tell` is given lines."""
    began, device = time.monotonic(), torch.device("cuda", torch.cuda.current_device())
    rates: dict[Precision, list[float]] = {"tf32": [], "float32": []}
    rows: list[StepRow] = []
    # Graphs cannot be captured on the stream that everything is on by itself.
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    with library_settings(bench.precision), torch.cuda.stream(stream):
        for network in bench.networks:
            for images in bench.images:
                for precision, found in rates.items():
                    found.append(gemm_rate(precision, device))
                rows += _rows(bench, network, images, device, tell)
                _forget()
    gemm = GpuGemm(tuple(rates["tf32"]), tuple(rates["float32"]))
    return GpuRecord(bench, torch.cuda.get_device_name(device), gemm, tuple(rows), time.monotonic() - began)


def gpu_machine(gpu: str) -> dict[str, str | int]:
    """This machine with its GPU, and the libraries that matter there."""
    return {"gpu": gpu, **machine(), "cuda": torch.version.cuda or "none", "triton": _version("triton")}


def _rows(bench: GpuBench, network: ChainName, images: int, device: torch.device, tell: Tell) -> list[StepRow]:
    """All contestants at one job."""
    tell(f"{network}, {images} images: {bench.models} models get ready")
    job = make_job(network, bench.models, images, device)
    runners: list[RunnerName] = ["feddst", *bench.against]
    exact = bench.precision == "float32"
    return play(job, runners, lambda name: make_contestant(name, job, exact=exact), bench.repeats, tell)


def _forget() -> None:
    """Leave nothing of a job to the next, neither in memory nor in compilers."""
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
