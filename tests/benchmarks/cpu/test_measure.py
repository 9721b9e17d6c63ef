"""The CPU bench: a small one, its FLOPs by hand, and tables of made-up records; timings depend on the machine."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from benchmarks.cpu import foreign_load, kernels
from benchmarks.cpu.arithmetic import Gemm, round_flops
from benchmarks.cpu.evaluation import EvaluationRow
from benchmarks.cpu.foreign_load import ForeignLoad
from benchmarks.cpu.jobs import CIFAR_IMAGES, TEST_IMAGES, Case, CpuJob, cases, make_job
from benchmarks.cpu.kernels import BATCHES, CrossingRow, KernelRow, crossing
from benchmarks.cpu.measure import CpuBench, CpuRecord, measure
from benchmarks.cpu.rounds import Laps, RoundRow, RunnerName
from benchmarks.cpu.tables import markdown, tables
from benchmarks.cpu.targets import verdicts
from benchmarks.rivals.job import Client, Training
from benchmarks.wire.updates import NetworkName
from feddst.core import count_active
from feddst.data import DataConfig, Federation, federate
from feddst.errors import OptionError
from feddst.stopwatch import Timing


@pytest.fixture(scope="module")
def mnist() -> CpuJob:
    return make_job("mnist", clients=2, epochs=1, seed=0)


class Rival:
    """Stands in for PyTorch's processes, which are slow to start."""

    def __init__(self, module: nn.Module, workers: int, training: Training) -> None:
        assert (workers, training.epochs) == (1, 1)

    def __enter__(self) -> "Rival":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def round(self, clients: Sequence[Client]) -> float:
        assert [len(labels) for _, labels in clients] == [40, 40]
        return 0.5


def test_a_small_bench(mnist: CpuJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.cpu.rounds.TorchProcesses", Rival)
    monkeypatch.setattr("benchmarks.cpu.arithmetic.SIZE", 64)
    told: list[str] = []
    bench = CpuBench(
        sparsities=(0.0, 0.9), parts=("rounds",), turns=1, rounds=2, clients=2, epochs=1, workers=1, reference=True
    )
    record = measure(bench, [mnist], told.append)
    found = [(row.runner, str(row.case)) for row in record.rounds]
    networks = ["dense", "S = 0.9, ERK", "S = 0.9, uniform"]
    ours: list[RunnerName] = ["native", "reference"]
    assert found == [("PyTorch", "dense"), *((runner, network) for runner in ours for network in networks)]
    assert [line.partition(": ")[0] for line in told] == [
        "mnist, turn 1 of 1, " + (runner if runner == "PyTorch" else f"{runner}, {network}")
        for runner, network in found
    ]
    for row in record.rounds:
        [laps] = row.turns
        assert row.runner != "PyTorch" or laps == Laps((0.5, 0.5))
        readjusting = 1 if row.case.level else 0
        assert len(laps.readjusting) == readjusting
        assert len(laps.ordinary) == (2 if row.runner == "PyTorch" else 10 - readjusting)
        assert row.density == pytest.approx(1 - row.case.level, abs=1e-5)
    assert record.gemm is not None
    assert (record.gemm.threads, len(record.gemm.alone), len(record.gemm.together)) == (1, 1, 1)
    about = json.loads(json.dumps(record.as_json("python -m benchmarks.cpu")))
    assert len(about["rounds"]) == 7
    assert about["isa"] == record.isa
    assert about["rounds"][1]["speedup"] == pytest.approx(0.5 / about["rounds"][1]["ordinary"]["median"])
    assert [table.title for table in tables(record)] == ["Targets", "Rounds", "Arithmetic"]


def test_every_layer_is_timed_at_every_density(monkeypatch: pytest.MonkeyPatch) -> None:
    layers: list[tuple[NetworkName, str]] = [("mnist-cnn", "conv2"), ("mnist-cnn", "fc1")]
    monkeypatch.setattr(kernels, "DENSITIES", (0.1, 1.0))
    monkeypatch.setattr(kernels, "LAYERS", layers)
    told: list[str] = []
    record = measure(CpuBench(parts=("kernels",), turns=1, repeats=1), [], told.append)
    assert told == [f"{network}, {layer} at densities up to 1" for network, layer in layers]
    places = [(row.network, row.layer, row.images, row.density) for row in record.kernels]
    assert places == [(*layer, images, density) for layer in layers for images in BATCHES for density in (0.1, 1.0)]
    assert [(row.network, row.layer, row.images) for row in record.crossings] == [
        (*layer, images) for layer in layers for images in BATCHES
    ]
    assert all(0.01 < row.taken_from < 1 for row in record.crossings)
    assert (record.gemm, record.rounds, record.evaluations) == (None, (), ())
    assert [table.title for table in tables(record)] == ["Where kernels cross", "Kernels"]


def test_evaluation(mnist: CpuJob) -> None:
    small = replace(mnist, federation=_shortened(mnist))
    record = measure(CpuBench(sparsities=(0.9,), parts=("evaluation",), turns=1, workers=1), [small], lambda line: None)
    [row] = record.evaluations
    assert (row.job, str(row.case), row.images) == ("mnist", "S = 0.9, ERK", 500)
    assert 0 < row.native.shortest <= row.native.median


def _shortened(job: CpuJob) -> Federation:
    data = job.federation.dataset
    return federate(DataConfig(clients=2), 0, replace(data, test=data.test.taken(np.arange(500))))


# What a round's arithmetic comes to.

# 28 → conv 5×5 → 24 → pool 3×3 → 22 → conv 5×5 → 18 → pool → 16.
CONV1, CONV2 = 24 * 24 * 10 * 25, 18 * 18 * 20 * 250
FC1, FC2 = 20 * 16 * 16 * 50, 50 * 10


def test_flops_by_hand(mnist: CpuJob) -> None:
    assert mnist.passes == 2 * 40
    assert round_flops(mnist, {}) == 80 * (4 * CONV1 + 6 * (CONV2 + FC1 + FC2))
    half = {"conv1.weight": 0.5, "fc1.weight": 0.25}
    assert round_flops(mnist, half) == 80 * (4 * CONV1 // 2 + 6 * (CONV2 + FC1 // 4 + FC2))


def test_flops_count_active_weights_once_for_each_place(mnist: CpuJob) -> None:
    masks = mnist.initial(Case(0.8)).masks
    kept = count_active(masks)
    densities = {name: kept[name] / mask.numel() for name, mask in masks.items()}
    each = 4 * 24**2 * kept["conv1.weight"] + 6 * 18**2 * kept["conv2.weight"]
    each += 6 * (kept["fc1.weight"] + kept["fc2.weight"])
    assert round_flops(mnist, densities) == 80 * each


def test_noise_has_the_form_of_cifar10() -> None:
    job = make_job("cifar10", clients=1, epochs=3, seed=0)
    assert job.passes == 3 * CIFAR_IMAGES
    assert job.example.shape == (1, 3, 32, 32)
    assert len(job.federation.dataset.test_labels) == TEST_IMAGES
    conv1, conv2 = 28 * 28 * 6 * 75, 22 * 22 * 16 * 150
    linear = 16 * 20 * 20 * 120 + 120 * 84 + 84 * 10
    assert round_flops(job, {}) == 300 * (4 * conv1 + 6 * (conv2 + linear))


def test_the_dense_network_is_one_case() -> None:
    assert list(map(str, cases((0.0, 0.5)))) == ["dense", "S = 0.5, ERK", "S = 0.5, uniform"]


# Made-up records.


def rows(job: str, seconds: dict[Case, tuple[float, float]]) -> list[RoundRow]:
    """PyTorch at 10 s a round, and ours: ordinary and readjusting rounds, each also half as slow again."""
    found = [RoundRow(job, "PyTorch", Case(0.0), 1.0, 4_000_000_000, (Laps((10.0, 10.0, 15.0)),))]
    for case, (plain, moving) in seconds.items():
        readjusting = (moving,) if case.level else ()
        laps = (Laps((plain, 1.5 * plain), readjusting), Laps((plain,), readjusting))
        found.append(RoundRow(job, "native", case, 1 - case.level, 2_000_000_000, laps))
    return found


def kernel(density: float, ratio: float, images: int = 32) -> KernelRow:
    rest, dense = 0.001, 0.002
    return KernelRow(
        "mnist-cnn",
        "conv2",
        images,
        density,
        Timing(1, rest + dense * ratio, 1),
        Timing(1, rest + dense, 1),
        Timing(1, rest, 1),
    )


@pytest.fixture
def record() -> CpuRecord:
    found = rows(
        "mnist",
        {
            Case(0.0): (4.0, 0.0),
            Case(0.5, "erk"): (2.0, 4.0),
            Case(0.8, "erk"): (0.7, 1.7),
            Case(0.5, "uniform"): (1.0, 2.0),
            Case(0.8, "uniform"): (1.0, 2.0),
        },
    )
    return CpuRecord(
        isa="avx2",
        workers=2,
        gemm=Gemm(2, (50.0, 60.0, 70.0), (100.0, 80.0, 120.0)),
        rounds=tuple(found),
        kernels=(kernel(0.1, 0.4), kernel(0.2, 1.2), kernel(0.1, 0.5, 8), kernel(0.2, 0.75, 8)),
        crossings=(CrossingRow("mnist-cnn", "conv2", 32, 0.175, 0.6), CrossingRow("mnist-cnn", "conv2", 8, None, 0.6)),
        evaluations=(EvaluationRow("mnist", Case(0.8), 10_000, Timing(0.2, 0.1, 3), Timing(1.0, 0.9, 3)),),
        seconds=61.4,
        others=0.021,
    )


def test_the_tables_of_a_record(record: CpuRecord) -> None:
    found = {table.title: table.rows[1:] for table in tables(record)}
    assert list(found) == ["Targets", "Rounds", "Arithmetic", "Where kernels cross", "Kernels", "Evaluation"]
    none = "–"
    assert found["Rounds"][0] == (
        "mnist",
        "PyTorch",
        none,
        none,
        "10.000",
        "10.000",
        "1.00",
        "1.00",
        *[none] * 3,
        "1.00",
    )
    assert found["Rounds"][3] == (
        *("mnist", "native", "0.8", "ERK"),
        *("0.700", "0.700", "14.29", "14.29"),
        *("1.700", "1.700", "5.88"),
        "12.50",
    )
    assert found["Arithmetic"][1] == ("mnist", "native", "0", none, "1.000", "2.00", "0.0200", "4.0000", "0.5", "0.5 %")
    assert found["Where kernels cross"] == [
        ("mnist-cnn", "conv2", "32", "0.17", "0.60"),
        ("mnist-cnn", "conv2", "8", none, "0.60"),
    ]
    assert found["Kernels"][1] == ["mnist-cnn", "conv2", "0.2", "2,400", "2,000", "1.20", "1,500", "2,000", "0.75"]
    assert found["Evaluation"] == [("mnist", "0.8", "10,000", "0.200", "0.100", "1.000", "0.900", "5.00")]
    page = markdown(record, record.as_json("python -m benchmarks.cpu"))
    for table in tables(record):
        assert {len(row) for row in table.rows} == {len(table.rows[0])}
        assert f"\n## {table.title}\n" in page
    assert "with avx2 kernels. Others had 2.1 % of the processors' time meanwhile.\n" in page
    assert "60.0 GFLOP/s of one thread, 100.0 of 2 at once (medians of 3)" in page


def test_targets_are_judged_by_the_numbers(record: CpuRecord) -> None:
    found = [(verdict.met, verdict.found) for verdict in verdicts(record)]
    assert found == [
        (True, "12.50: 0.800 s, 10.000 s"),
        (False, "12.50: 0.800 s, 10.000 s"),
        (None, ""),
        (True, "2.50: 4.000 s, 10.000 s"),
        (True, "0: 4.000 s, 0.5: 2.000 s, 0.8: 0.700 s"),
        (False, "0: 4.000 s, 0.5: 1.000 s, 0.8: 1.000 s"),
    ]


def test_one_sparsity_makes_no_steps(record: CpuRecord) -> None:
    alone = replace(record, rounds=tuple(rows("cifar10", {Case(0.8, "erk"): (0.5, 0.5)})))
    assert [verdict.met for verdict in verdicts(alone)] == [True, True, None, None, None, None]


@pytest.mark.parametrize(
    ("ratios", "density"),
    [
        ((0.5, 0.9, 1.1, 1.3), 0.25),
        ((0.5, 1.1, 0.9, 1.1), 0.35),
        ((0.5, 0.6, 0.7, 0.8), None),
        ((0.5, 1.1, 1.2, 0.9), None),
        ((1.1, 1.2, 1.3, 1.4), 0.1),
    ],
)
def test_where_times_cross_for_good(ratios: tuple[float, ...], density: float | None) -> None:
    found = crossing([kernel(tenths / 10, ratio) for tenths, ratio in enumerate(ratios, 1)])
    assert found == (None if density is None else pytest.approx(density))


def test_what_others_do_meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(foreign_load, "_STAT", stat)
    monkeypatch.setattr(foreign_load, "_own_seconds", lambda: 0.0)
    assert ForeignLoad().share() is None
    stat.write_text("cpu 100 0 50 1000 50 0 0 0 7 7\ncpu0 1 2 3\n")
    foreign = ForeignLoad()
    stat.write_text("cpu 120 0 60 1060 60 0 0 0 99 99\ncpu0 1 2 3\n")
    assert foreign.share() == pytest.approx(0.3)
    monkeypatch.setattr(foreign_load, "_own_seconds", lambda: 20 / os.sysconf("SC_CLK_TCK"))
    assert foreign.share() == pytest.approx(0.1)


# What makes no sense.


@pytest.mark.parametrize(
    ("bench", "message"),
    [
        (CpuBench(jobs=()), "jobs must not be empty"),
        (CpuBench(parts=()), "parts must not be empty"),
        (CpuBench(sparsities=(0.5, 0.5)), "sparsities names 0.5 twice"),
    ],
)
def test_what_makes_no_sense_is_refused(bench: CpuBench, message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}$"):
        bench.check()


def test_without_compiled_kernels_there_is_nothing_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "feddst was installed without its compiled kernels (why)"
    monkeypatch.setattr("benchmarks.cpu.measure.why_missing", lambda: reason)
    with pytest.raises(OptionError, match=r"^bench cpu measures compiled kernels, but feddst was"):
        CpuBench().check()
