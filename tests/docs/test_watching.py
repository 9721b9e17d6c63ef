"""docs/watching.md: its Python runs as it stands, and does what the page says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest


@pytest.mark.usefixtures("tiny_mnist")
def test_the_page_runs_as_it_stands(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = code_page("watching").run()
    plt.close("all")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "Result of feddst, seed 0: 3 rounds, finished"
    assert (workshop / "accuracy.png").is_file()
    assert (workshop / "runs/watched/metrics.jsonl").is_file()
    assert len(list((workshop / "events").glob("*/events.out.tfevents.*"))) == 2
    assert left["stopping"].best_round >= 1
    assert printed[-1] == "False 1"  # any accuracy is above that goal
