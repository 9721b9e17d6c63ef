"""The README's example runs as it stands, and its figures are those of the records."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from feddst.methods import METHODS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_python_example(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(example, "README.md", "exec"), names)
    assert names["result"].summary.best > 0.8
    assert "% with 20% of the weights" in capsys.readouterr().out
    right = names["scores"].argmax(dim=1) == names["data"].test_labels
    assert right.float().mean().item() == pytest.approx(names["result"].rows[-1].accuracy_global)


@pytest.mark.parametrize(
    "path",
    [
        "results/mnist-100-rounds/feddst.json",
        "results/mnist-100-rounds-native/feddst.json",
        "results/mnist-100-rounds/feddst-q4.json",
        "results/mnist-100-rounds/feddst-q2.json",
        "results/mnist-100-rounds/fedavgm.json",
        "results/mnist-100-rounds/feddst-published.json",
    ],
)
def test_the_hundred_rounds(path: str) -> None:
    record = json.loads((ROOT / path).read_text())
    [line] = [line for line in README.splitlines() if line.startswith("| [") and f"({path})" in line]
    assert f"| {record['mean']:.1f} ± {record['std']:.1f} % | {len(record['seeds'])} |" in line


def test_four_bits_cost_and_learn_what_is_said() -> None:
    plain, rounded = (
        json.loads((ROOT / f"results/mnist-100-rounds/{name}.json").read_text()) for name in ("feddst", "feddst-q4")
    )
    sent = [sum(curve[-1]["upload_bytes"] for curve in record["curves"].values()) for record in (plain, rounded)]
    assert f"cost {sent[1] / sent[0]:.3f} of the bytes of float32" in README.replace("\n", " ")
    assert rounded["mean"] >= plain["mean"] - 0.3


def test_the_quick_comparison() -> None:
    record = json.loads((ROOT / "results/quick.json").read_text())
    for curve in record["curves"]:
        seen = list(zip(curve["accuracy"], curve["upload_bytes"], strict=True))
        cells = [100 * max(a for a, sent in seen if sent <= cap * 2**30) for cap in record["config"]["caps"]]
        cells += [curve[f"{way}_bytes"][-1] / 2**20 for way in ("upload", "download")]
        shown = r"\s+".join(re.escape(f"{cell:.1f}") for cell in cells)
        assert re.search(rf"^{curve['label']}\s+{shown}$", README, re.MULTILINE)


def test_the_quick_comparison_in_a_sentence() -> None:
    record = json.loads((ROOT / "results/quick.json").read_text())
    cap = record["config"]["caps"][-1] * 2**30
    best = {
        curve["label"]: round(
            100 * max(a for a, sent in zip(curve["accuracy"], curve["upload_bytes"], strict=True) if sent <= cap), 1
        )
        for curve in record["curves"]
    }
    above, below = best["feddst"] - best["fedavgm"], best["randommask"] - best["feddst"]
    sentence = (
        f"feddst reaches {best['feddst']:.1f} % mean client accuracy, {above:.1f} points above fedavgm and "
        f"{below:.1f} points below randommask (one seed)."
    )
    assert sentence in README.replace("\n", " ")


def test_the_killed_runs() -> None:
    record = json.loads((ROOT / "results/kill-and-resume.json").read_text())
    assert f"at {len(record['cases'])} random moments" in README
    assert all(case["same_checkpoint"] and case["same_metrics"] for case in record["cases"])


def test_the_comparison_of_all_methods() -> None:
    page = (ROOT / "docs/methods.md").read_text()
    record = json.loads((ROOT / "results/methods.json").read_text())
    [cap] = record["config"]["caps"]
    assert {curve["label"].partition(":")[0] for curve in record["curves"]} == set(METHODS)
    for curve in record["curves"]:
        seen = zip(curve["accuracy"], curve["upload_bytes"], strict=True)
        best = 100 * max(accuracy for accuracy, sent in seen if sent <= cap * 2**30)
        [line] = [line for line in page.splitlines() if re.match(rf"\| {re.escape(curve['label'])} +\| +[\d.]+", line)]
        assert re.match(rf"\| {re.escape(curve['label'])} +\| +{best:.1f}", line)
        assert f"| {curve['upload_bytes'][-1] / 2**20:.1f} |" in re.sub(" +", " ", line)


def test_the_seconds_of_a_round() -> None:
    record = json.loads((ROOT / "results/cpu-bench.json").read_text())
    rows = [row for row in record["rounds"] if row["job"] == "mnist"]
    pytorch = next(row["ordinary"]["median"] for row in rows if row["runner"] == "PyTorch")
    assert f"a process on each core | {pytorch:.3f} | 1 |" in README
    for level, name in {0.0: "dense", 0.8: "S = 0.8 (ERK)", 0.95: "S = 0.95 (ERK)"}.items():
        case = {"level": level, "distribution": "erk"}
        ours = next(row for row in rows if row["runner"] == "native" and row["case"] == case)
        median = ours["ordinary"]["median"]
        assert f"| feddst, {name} | {median:.3f} | {pytorch / median:.1f} |" in README
        if level == 0.8:
            assert f"takes {ours['readjusting']['median']:.3f} s at S = 0.8" in README
            assert f"it is {ours['speedup']:.1f} times as fast" in README
        if level == 0.95:
            assert f"and {ours['speedup']:.1f} times at S = 0.95" in README


def test_the_promises_at_the_top() -> None:
    record = json.loads((ROOT / "results/cpu-bench.json").read_text())
    rows = [row for row in record["rounds"] if row["job"] == "mnist"]
    pytorch = next(row["ordinary"]["median"] for row in rows if row["runner"] == "PyTorch")
    case = {"level": 0.8, "distribution": "erk"}
    ours = next(row["ordinary"]["median"] for row in rows if row["runner"] == "native" and row["case"] == case)
    assert f"on a CPU train {pytorch / ours:.1f} times as fast" in README
    steps = json.loads((ROOT / "results/gpu-bench.json").read_text())["steps"]
    [step] = [s for s in steps if (s["runner"], s["network"], s["images"]) == ("feddst", "mnist-cnn", 32)]
    assert f"side by side on a GPU in {1000 * step['median']:.2f} ms" in README
    runs = json.loads((ROOT / "results/slow-network.json").read_text())["runs"]
    up = {(run["method"], run["values"]): run["curve"][-1]["up"] / 2**20 for run in runs}
    least, most = up["feddst", "q4"], up["fedavgm", "float32"]
    assert f"1 Mbit/s: {least:.1f} MiB up, where FedAvgM takes {most:.1f} MiB" in README


def test_the_seconds_of_others() -> None:
    record = json.loads((ROOT / "results/peers-bench.json").read_text())
    medians = {runner["name"]: f"{runner['median']:.2f} s" for runner in record["runners"]}
    text = README.replace("\n", " ")
    assert f"Flower's simulation takes {medians['Flower simulation']} for the same" in text
    assert f"FedLab {medians['FedLab']}, pfl-research {medians['pfl-research']}" in text
    assert f"ours {medians['feddst, S = 0.8']} at S = 0.8 in the same run" in text
