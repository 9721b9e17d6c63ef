"""The README's example runs as it stands, and its figures are those of the records."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("claim", ["feddst", "fedavgm", "feddst-published"])
def test_the_hundred_rounds(claim: str) -> None:
    path = f"results/mnist-100-rounds/{claim}.json"
    record = json.loads((ROOT / path).read_text())
    [line] = [line for line in README.splitlines() if line.startswith("| [") and f"({path})" in line]
    assert f"| {record['mean']:.1f} ± {record['std']:.1f} % |" in line


def test_the_quick_comparison() -> None:
    record = json.loads((ROOT / "results/quick.json").read_text())
    for curve in record["curves"]:
        seen = list(zip(curve["accuracy"], curve["upload_bits"], strict=True))
        cells = [max(a for a, bits in seen if bits <= cap * 8 * 2**30) for cap in record["config"]["caps"]]
        shown = r"\s+".join(re.escape(f"{100 * cell:.1f}") for cell in cells)
        assert re.search(rf"^{curve['label']}\s+{shown}$", README, re.MULTILINE)


def test_the_killed_runs() -> None:
    record = json.loads((ROOT / "results/kill-and-resume.json").read_text())
    assert f"at {len(record['cases'])} random moments" in README
    assert all(case["same_checkpoint"] and case["same_metrics"] for case in record["cases"])
