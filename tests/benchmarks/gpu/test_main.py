"""`python -m benchmarks.gpu` from the outside, on machines without a GPU."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.measure import GpuBench, GpuRecord
from benchmarks.gpu.products import GpuGemm
from benchmarks.gpu.turns import StepRow, Tell

Call = Callable[..., Any]

ROOT = Path(__file__).parents[3]
SPARE = ("rich", "pooch", "safetensors", "matplotlib", "PIL", "triton", "feddst._native")
"""What need not be installed to get as far as the GPU."""


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU stands by, and what is measured there is made up: ours, and one who failed if he was asked for."""

    def measure(bench: GpuBench, tell: Tell) -> GpuRecord:
        tell("measuring")
        ours = StepRow("mnist-cnn", bench.models, 32, "feddst", 10**9, (0.002,))
        rivals = [StepRow("mnist-cnn", bench.models, 32, name, 10**9, failure="tired") for name in bench.against]
        return GpuRecord(bench, "a chip", GpuGemm((400.0,), (50.0,)), (ours, *rivals), 1.0)

    monkeypatch.setattr("benchmarks.gpu.measure.why_not", lambda: "")
    monkeypatch.setattr("benchmarks.gpu.__main__.measure", measure)


@pytest.mark.usefixtures("made_up")
def test_a_bench_prints_tables_and_writes_both_files(bench: Call, tmp_path: Path) -> None:
    outcome = bench("gpu --models 200 --against= --out mine/gpu.json --markdown gpu.md")
    assert outcome.code == 0
    assert outcome.err.splitlines() == ["measuring", "record: mine/gpu.json", "tables: gpu.md"]
    record = json.loads((tmp_path / "mine/gpu.json").read_text())
    assert record["command"] == "python -m benchmarks.gpu --models 200 --against ''"
    assert [row["median"] for row in record["steps"]] == [0.002]
    page = (tmp_path / "gpu.md").read_text()
    for title in ("Targets", "Steps"):
        assert f"\n{title}\n" in outcome.out
        assert f"\n## {title}\n" in page


@pytest.mark.usefixtures("made_up")
def test_who_fails_is_named(bench: Call, tmp_path: Path) -> None:
    outcome = bench("gpu --against vmap")
    assert outcome.code == 1
    assert outcome.out.endswith("\nfailed: mnist-cnn, 32 images, vmap, compiled: tired\n")
    assert (tmp_path / "runs/bench-gpu.json").is_file()


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("place", ["out", "markdown"])
def test_files_are_not_overwritten(bench: Call, tmp_path: Path, place: str) -> None:
    (tmp_path / "mine").write_text("years of work")
    outcome = bench(f"gpu --{place} mine")
    assert (outcome.code, outcome.out, outcome.err) == (2, "", "feddst: mine exists already\n")


def test_help(bench: Call) -> None:
    lines = bench("gpu --help").out.splitlines()
    for option in ("networks", "models", "images", "against", "precision", "repeats", "out", "markdown"):
        assert any(line.startswith(f"  --{option} ") for line in lines)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--networks resnet18", "networks must be one of mnist-cnn, cifar10-cnn, cifar100-cnn, got 'resnet18'"),
        ("--images 0", "images must be at least 1, got 0"),
        ("--images=", "images must not be empty"),
        ("--against jax", "against must be one of single, vmap, grouped, got 'jax'"),
        ("--precision bf16", "precision must be one of tf32, float32, got 'bf16'"),
        ("--repeats 0", "repeats must be at least 1, got 0"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(bench: Call, tmp_path: Path, line: str, message: str) -> None:
    outcome = bench(f"gpu {line}")
    assert outcome.code == 2
    assert outcome.err.startswith(f"feddst: {message}")
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_and_with_little_installed_it_says_what_is_needed(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({SPARE})); import torch; torch.version.cuda = None; "
        "from benchmarks.program import main; from benchmarks.gpu.__main__ import COMMAND; "
        "sys.exit(main('gpu', COMMAND, []))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    needed = "feddst: bench gpu needs an NVIDIA GPU, PyTorch with CUDA, and Triton, but PyTorch "
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(needed)
    assert done.stderr.endswith(" was built without CUDA\n")
    assert list(tmp_path.iterdir()) == []
