"""The README's example runs as it stands, and learns."""

import re
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_example(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(example, "README.md", "exec"), names)
    assert names["result"].summary.best > 0.8
    assert "% with 20% of the weights" in capsys.readouterr().out
