"""docs/speed.md: its figures are those of the records."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/speed.md").read_text()


def cell(title: str) -> str:
    """What a row of two cells says."""
    [found] = re.findall(rf"^\| {re.escape(title)} \| ([0-9.]+) \|$", PAGE, re.MULTILINE)
    return str(found)


def test_rounds_on_a_cpu() -> None:
    record = json.loads((ROOT / "results/cpu-bench.json").read_text())
    assert (record["workers"], record["machine"]["cores"]) == (2, 2)
    median = {
        (row["runner"], row["case"]["level"]): row["ordinary"]["median"]
        for row in record["rounds"]
        if row["job"] == "mnist" and row["case"]["distribution"] == "erk"
    }
    assert cell("PyTorch, dense, a process on each core") == f"{median['PyTorch', 0.0]:.3f}"
    assert cell("feddst, dense") == f"{median['native', 0.0]:.3f}"
    assert cell("feddst, S = 0.8") == f"{median['native', 0.8]:.3f}"
    assert cell("feddst, S = 0.95") == f"{median['native', 0.95]:.3f}"


def test_steps_on_a_gpu() -> None:
    record = json.loads((ROOT / "results/gpu-bench.json").read_text())
    titles = {
        "single": "one model after another",
        "vmap": "`torch.func.vmap`, compiled",
        "grouped": "grouped convolutions, compiled",
        "feddst": "feddst",
    }
    steps = [step for step in record["steps"] if (step["network"], step["images"]) == ("mnist-cnn", 32)]
    assert {step["runner"] for step in steps} == set(titles)
    for step in steps:
        assert step["models"] == 200
        assert cell(titles[step["runner"]]) == f"{1000 * step['median']:.2f}"
