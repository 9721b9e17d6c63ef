"""The GPU bench without a GPU: its FLOPs by hand, its contestants' steps on a CPU, and tables of made-up records."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.gpu import measure as gpu
from benchmarks.gpu.contestants import Contestant, Eager, Ours, RunnerName, make_contestant
from benchmarks.gpu.jobs import LOCAL, STEPS, GpuJob, make_job
from benchmarks.gpu.measure import GpuBench, GpuRecord
from benchmarks.gpu.products import GpuGemm, gemm_rate, library_settings
from benchmarks.gpu.rivals import OneByOne, SideBySide, grouped_gradients, vmap_gradients
from benchmarks.gpu.tables import markdown, remarks, tables
from benchmarks.gpu.targets import verdicts
from benchmarks.gpu.turns import StepRow, difference, play
from feddst.core import Examples, count_active
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.vmapped import VmapTrainer
from feddst.errors import OptionError

CPU = torch.device("cpu")
RUNNERS: list[RunnerName] = ["feddst", "single", "vmap", "grouped"]


@pytest.fixture(scope="module")
def job() -> GpuJob:
    return make_job("mnist-cnn", models=3, images=4, device=CPU)


def contestant(name: RunnerName, job: GpuJob) -> Contestant:
    """The same as on a GPU, but neither compiled nor in graphs, and with the trainer that needs no kernels."""

    def trainer(job: GpuJob, flat: Flat) -> VmapTrainer:
        return VmapTrainer(job.module, flat, Examples(job.inputs, job.labels))

    if name == "feddst":
        return Ours(job, trainer)
    if name == "single":
        return make_contestant("single", job, exact=False)
    return Eager(job, SideBySide(job, vmap_gradients if name == "vmap" else grouped_gradients), STEPS)


# What is trained.


def test_models_differ_and_their_masks_keep_a_fifth(job: GpuJob) -> None:
    sizes = {name: mask[0].numel() for name, mask in job.masks.items()}
    for model in range(job.models):
        masks = {name: mask[model] for name, mask in job.masks.items()}
        assert sum(count_active(masks).values()) == round(0.2 * sum(sizes.values()))
        assert all(not job.params[name][model][~mask].any() for name, mask in masks.items())
    assert not torch.equal(job.params["fc1.weight"][0], job.params["fc1.weight"][1])


def test_every_model_sees_its_own_images(job: GpuJob) -> None:
    assert job.index.shape == (STEPS, 3, 4)
    assert len(job.inputs) == len(job.labels) == 3 * 40
    for model in range(3):
        seen = job.index[:, model]
        assert (seen // 40 == model).all()
        assert all(len(set(step.tolist())) == 4 for step in seen)


def test_flops_of_a_step_by_hand(job: GpuJob) -> None:
    # 28 → conv 5×5 → 24 → pool 3×3 → 22 → conv 5×5 → 18 → pool → 16; nothing is differentiated before conv1.
    conv1, conv2 = 24 * 24 * 10 * 25, 18 * 18 * 20 * 250
    linear = 20 * 16 * 16 * 50 + 50 * 10
    assert job.flops == 3 * 4 * (4 * conv1 + 6 * (conv2 + linear))


# Who trains.


@pytest.mark.parametrize("name", RUNNERS[1:])
def test_all_contestants_train_alike(job: GpuJob, name: RunnerName) -> None:
    ours, other = contestant("feddst", job), contestant(name, job)
    for one in (ours, other):
        one.steps(3)
    assert difference(other.weights(), ours.weights(), job.params) < 1e-4
    other.reset()
    assert all(torch.equal(value, job.params[key]) for key, value in other.weights().items())


def test_a_step_is_masked_descent(job: GpuJob) -> None:
    """The first step by the formula: θ − lr · (g + l2 · θ), where masks allow; the bias of fc2 has no mask."""
    rival = OneByOne(job)
    index = torch.from_numpy(job.index[0])
    gradients = vmap_gradients(job.module, job.params, job.inputs[index], job.labels[index])
    rival.step(index)
    for name in ("conv2.weight", "fc2.bias"):
        theta = job.params[name]
        allowed: Tensor | bool = job.masks.get(name, True)
        expected = theta - LOCAL.lr * (gradients[name] + LOCAL.l2 * theta) * allowed
        torch.testing.assert_close(rival.weights()[name], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("gradients", [vmap_gradients, grouped_gradients])
def test_steps_are_compiled_in_one_piece(job: GpuJob, gradients: Callable[..., dict[str, Tensor]]) -> None:
    plain, compiled = (SideBySide(job, gradients) for _ in range(2))
    index = torch.from_numpy(job.index[0])
    plain.step(index)
    torch.compile(compiled.step, fullgraph=True, dynamic=False, backend="eager")(index)
    torch.compiler.reset()
    assert difference(compiled.weights(), plain.weights(), job.params) < 1e-6


# Turns.


def test_turns_and_who_fails(job: GpuJob) -> None:
    def make(name: RunnerName) -> Contestant:
        if name == "vmap":
            raise RuntimeError("no\n  kernel")
        return contestant(name, job)

    told: list[str] = []
    ours, single, vmap = play(job, ["feddst", "single", "vmap"], make, 2, told.append)
    assert (ours.network, ours.models, ours.images, ours.flops) == ("mnist-cnn", 3, 4, job.flops)
    assert (len(ours.laps), len(single.laps), vmap.laps) == (2, 2, ())
    assert ours.difference == 0
    assert single.difference is not None
    assert single.difference < 1e-4
    assert (vmap.failure, vmap.difference) == ("RuntimeError: no kernel", None)
    assert [line.partition(" ")[0] for line in told] == ["feddst", "single", "vmap", "mnist-cnn,"]
    assert told[2] == "vmap failed: RuntimeError: no kernel"
    assert told[3].endswith(", vmap failed")


def test_who_fails_later_keeps_his_laps(job: GpuJob) -> None:
    class Tired(Eager):
        left = 4

        def steps(self, count: int) -> None:
            if not self.left:
                raise RuntimeError("tired")
            self.left -= 1
            super().steps(count)

    def make(name: RunnerName) -> Contestant:
        return Tired(job, OneByOne(job), most=1)

    [row] = play(job, ["feddst"], make, 9, lambda line: None)
    assert (len(row.laps), row.failure) == (2, "RuntimeError: tired")


@pytest.mark.parametrize(
    ("factor", "failure"),
    [(1.0, "a step changes nothing"), (torch.nan, "after one step there are weights that are no")],
)
def test_who_does_not_train_fails(job: GpuJob, factor: float, failure: str) -> None:
    class Idle(Eager):
        def steps(self, count: int) -> None:
            pass

        def weights(self) -> dict[str, Tensor]:
            return {name: factor * value for name, value in super().weights().items()}

    [row] = play(job, ["feddst"], lambda name: Idle(job, OneByOne(job), most=1), 1, lambda line: None)
    assert row.failure.startswith(f"ArithmeticError: {failure}")
    assert row.laps == ()


def test_the_difference_by_hand() -> None:
    start = {"w": torch.tensor([0.0, 0.0])}
    assert difference({"w": torch.tensor([4.0, 1.5])}, {"w": torch.tensor([4.0, 1.0])}, start) == 0.125


def test_products_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.products.SIZE", 32)
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, cudnn.benchmark, cudnn.deterministic
    assert gemm_rate("float32", CPU) > 0
    with library_settings("tf32"):
        assert (cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, cudnn.benchmark) == (True, True, True)
    assert before == (cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, cudnn.benchmark, cudnn.deterministic)


# Made-up records.


def row(runner: RunnerName, *milliseconds: float, network: str = "mnist-cnn", failure: str = "") -> StepRow:
    laps = tuple(value / 1000 for value in milliseconds)
    return StepRow(network, 200, 32, runner, 6_000_000_000, laps, 12.3, 0.001, failure)


@pytest.fixture
def record() -> GpuRecord:
    rows = (row("feddst", 3.0, 2.0, 5.0), row("single", 240.0), row("vmap", failure="Error: /home/me"))
    return GpuRecord(GpuBench(), "NVIDIA H200", GpuGemm((300.0, 500.0, 400.0), (50.0, 50.0, 60.0)), rows, 61.4)


def test_the_tables_of_a_record(record: GpuRecord) -> None:
    found = {table.title: table.rows for table in tables(record)}
    assert list(found) == ["Targets", "Steps"]
    # 6 GFLOP in 3 ms are 2 TFLOP/s, of 400.
    assert found["Steps"][1:] == [
        ("mnist-cnn", "32", "feddst", "3.00", "2.00", "5.00", "1.00", "6.00", "2.00", "0.5 %", "0.10 %", "12"),
        (
            *("mnist-cnn", "32", "one model after another", "240.00", "240.00", "240.00", "80.00"),
            *("6.00", "0.03", "0.0 %", "0.10 %", "12"),
        ),
        ("mnist-cnn", "32", "vmap, compiled", "failed", *["–"] * 8),
    ]
    assert {len(line) for line in found["Steps"]} == {12}
    assert remarks(record) == ["failed: mnist-cnn, 32 images, vmap, compiled: Error: /home/me"]


def test_the_page_and_the_json_of_a_record(record: GpuRecord) -> None:
    about = json.loads(json.dumps(record.as_json("python -m benchmarks.gpu")))
    assert about["machine"]["gpu"] == "NVIDIA H200"
    assert {"cpu", "torch", "triton", "cuda"} <= set(about["machine"])
    ours, single, vmap = about["steps"]
    assert (ours["median"], ours["shortest"], ours["longest"], ours["share"]) == (0.003, 0.002, 0.005, 0.005)
    assert (single["ratio"], single["failure"]) == (pytest.approx(80), False)
    assert (vmap["failure"], vmap["laps"]) == (True, [])
    page = markdown(record, about)
    assert "Made by `python -m benchmarks.gpu` in 61 s, commit " in page
    assert " on NVIDIA H200 (cpu " in page
    assert "400 TFLOP/s in TF32 and 50 in float32" in page
    assert "/home/me" not in page + json.dumps(about)


def test_targets_are_judged_by_the_numbers(record: GpuRecord) -> None:
    found = [(verdict.met, verdict.found) for verdict in verdicts(record)]
    assert found == [(True, "3.00 ms on NVIDIA H200"), (False, "3.00 ms on NVIDIA H200")]


@pytest.mark.parametrize(
    "ours",
    [
        row("feddst", failure="Error"),
        row("feddst", 1.0, network="cifar10-cnn"),
        replace(row("feddst", 1.0), models=20),
    ],
)
def test_what_was_not_measured_is_not_judged(record: GpuRecord, ours: StepRow) -> None:
    alone = replace(record, rows=(ours, row("grouped", 9.0)))
    assert [(verdict.met, verdict.found) for verdict in verdicts(alone)] == [(None, "")] * 2


def test_without_ours_there_is_no_ratio(record: GpuRecord) -> None:
    alone = replace(record, rows=(row("feddst", failure="Error"), row("grouped", 9.0)))
    steps = tables(alone)[1].rows
    assert (steps[1][3], steps[2][6]) == ("failed", "–")
    assert record.failed
    assert not replace(record, rows=record.rows[:2]).failed


# What makes no sense.


@pytest.mark.parametrize(
    ("bench", "message"),
    [
        (GpuBench(networks=()), "networks must not be empty"),
        (GpuBench(images=(8, 8)), "images names 8 twice"),
        (GpuBench(against=("vmap", "vmap")), "against names vmap twice"),
        (GpuBench(against=()), "bench gpu needs an NVIDIA GPU, PyTorch with CUDA, and Triton, but it is Monday"),
    ],
)
def test_what_makes_no_sense_is_refused(bench: GpuBench, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "why_not", lambda: "it is Monday")
    with pytest.raises(OptionError, match=f"^{message}$"):
        bench.check()


def test_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert gpu.why_not() == f"PyTorch {torch.__version__} was built without CUDA"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.why_not() == "PyTorch sees no GPU here"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert gpu.why_not() == "triton is not installed"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert gpu.why_not() == ""
