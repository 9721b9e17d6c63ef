"""The README's example runs as it stands. Its figures are tested with those of the other pages."""

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
    assert right.float().mean().item() == pytest.approx(names["result"].rows[-1].score_global)
