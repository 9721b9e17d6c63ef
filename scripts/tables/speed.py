"""Rounds on a CPU, steps on a GPU, and what a server of many clients needs."""

from typing import Any

from feddst.runtime.wording import NOTHING
from scripts.tables.blocks import block
from scripts.tables.records import bench, source, with_caption

PYTORCH = "PyTorch"
RUNNERS = {
    "single": "one model after another",
    "vmap": "`torch.func.vmap`, compiled",
    "grouped": "grouped convolutions, compiled",
    "feddst": "feddst, `stacked`",
}


def rounds_of(record: str, job: str = "mnist") -> dict[tuple[str, float], dict[str, Any]]:
    """Rounds of a job with ERK, by runner and sparsity."""
    rows = [row for row in bench(record)["rounds"] if row["job"] == job and row["case"]["distribution"] == "erk"]
    return {(row["runner"], row["case"]["level"]): row for row in rows}


@block
def cpu_rounds() -> str:
    """Rounds of the paper's MNIST setting on two cores."""
    found = rounds_of("cpu-bench")
    pytorch = found[PYTORCH, 0.0]["ordinary"]["median"]
    rows = [["", "seconds a round", "times as fast", "readjusting round", "times as fast, one in ten readjusts"]]
    rows.append(["PyTorch, dense, a process on each core", f"{pytorch:.3f}", "1", NOTHING, "1"])
    for (runner, level), row in found.items():
        if runner != PYTORCH:
            again, median = row["readjusting"], row["ordinary"]["median"]
            usual = NOTHING if again is None else f"{row['speedup']:.1f}"
            told = [f"{median:.3f}", f"{pytorch / median:.1f}"]
            told += [NOTHING if again is None else f"{again['median']:.3f}", usual]
            rows.append([f"feddst, S = {level:g}" if level else "feddst, dense", *told])
    return with_caption(rows, f"Medians of one run in which all took turns, on two cores. From {source('cpu-bench')}.")


@block
def cpu_rounds_again() -> str:
    """The same bench, run again."""
    names = ("cpu-bench", "cpu-bench-again/1", "cpu-bench-again/2")
    rows = [["times as fast as PyTorch, one round in ten readjusts", "PyTorch, seconds", "S = 0.8", "S = 0.95"]]
    for name, title in zip(names, ("the run above", "shorter, first", "shorter, second"), strict=True):
        found = rounds_of(name)
        theirs = found[PYTORCH, 0.0]["ordinary"]["median"]
        rows.append([title, f"{theirs:.2f}", *(f"{found['native', level]['speedup']:.1f}" for level in (0.8, 0.95))])
    links = ", ".join(f"[record](results/{name}.json)" for name in names)
    return with_caption(rows, f"{links}.")


@block
def peers() -> str:
    """The same round in other frameworks."""
    rows = [["", "seconds a round", "times as long as feddst, S = 0.8, one in ten readjusts"]]
    runners = sorted(bench("peers-bench")["runners"], key=lambda one: -one["median"])
    rows += [[one["name"], f"{one['median']:.3f}", f"{one['usual_ratio']:.1f}"] for one in runners]
    return with_caption(
        rows, f"On two cores; “tuned” is with all that makes PyTorch fast. From {source('peers-bench')}."
    )


@block
def rounds_by_sparsity() -> str:
    """Rounds of both networks on two cores, ordinary and readjusting."""
    jobs = [rounds_of("cpu-bench", job) for job in ("mnist", "cifar10")]
    rows = [["engine", "MNIST", "readjusting", "CIFAR-10", "readjusting"]]
    for (runner, level), _ in jobs[0].items():
        told = []
        for found in jobs:
            again = found[runner, level]["readjusting"]
            told.append(f"{found[runner, level]['ordinary']['median']:.3f}")
            told.append(NOTHING if again is None else f"{again['median']:.3f}")
        name = PYTORCH if runner == PYTORCH else "native"
        rows.append([f"{name}, S = {level:g}" if level else f"{name}, dense", *told])
    return with_caption(
        rows, f"Seconds of a round of 20 clients with 10 epochs, on two cores. From {source('cpu-bench')}."
    )


def steps_of(record: str, images: int) -> dict[str, dict[str, Any]]:
    """One step of 200 models on a GPU, by who makes it."""
    return {step["runner"]: step for step in bench(record)["steps"] if step["images"] == images}


@block
def gpu_steps() -> str:
    """Steps of 200 models on a GPU."""
    columns = {
        "MNIST, 32 images": steps_of("gpu-bench", 32),
        "CIFAR-10, 32 images": steps_of("gpu-bench-cifar10", 32),
        "CIFAR-10, 8 images": steps_of("gpu-bench-cifar10", 8),
    }
    rows = [["milliseconds a step of 200 models", *columns]]
    rows += [
        [title, *(f"{1000 * one[key]['median']:.2f}" for one in columns.values())] for key, title in RUNNERS.items()
    ]
    ours = [one["feddst"] for one in columns.values()]
    rows.append(["feddst, TFLOP/s of dense arithmetic", *(f"{one['tflops']:.1f}" for one in ours)])
    rows.append(["feddst, of the rate of large TF32 products", *(f"{100 * one['share']:.0f} %" for one in ours)])
    about = "Each model has its own weights, masks and images. On an H200"
    return with_caption(rows, f"{about}. From {source('gpu-bench', 'gpu-bench-cifar10')}.")
