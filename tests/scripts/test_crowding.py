"""How crowded masks are: by hand, and from the checkpoints of a study."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from feddst.cli.main import main

STUDY = """
title = "one way"
caps = [0.01]

[options]
data.clients = 4
data.partition = "iid"
cohort.size = 2
local.epochs = 1

[rows.still]
title = "still"
options = { method = "randommask" }
"""


@pytest.fixture
def script(script_named: Callable[[str], ModuleType]) -> ModuleType:
    return script_named("crowding")


def test_by_hand(script: ModuleType) -> None:
    mask = torch.zeros(20, 4, dtype=torch.bool)
    mask[:, 0] = True
    mask[3, 1] = mask[5, 1] = True
    assert script.crowding(mask) == (
        pytest.approx(4 / 22),
        0.5,
    )  # of 20 outputs two have two each; two inputs have none
    assert script.crowding(torch.ones(10, 2, 3, 3, dtype=torch.bool)) == (pytest.approx(0.1), 0.0)


def test_of_a_study(script: ModuleType, tmp_path: Path) -> None:
    study, out = tmp_path / "study.toml", tmp_path / "out"
    study.write_text(STUDY, encoding="utf-8")
    assert main(["study", str(study), "--seeds", "2", "--rounds", "1", "--out", str(out)]) == 0
    found = script.measured(out)
    assert found.keys() == {"still"}
    assert {name: found["still"][name] for name in ("layer", "seeds", "round")} == {
        "layer": "fc1.weight", "seeds": 2, "round": 1
    }  # fmt: skip
    assert 0.1 < found["still"]["fullest_outputs"] < 0.15
    assert found["still"]["empty_inputs"] < 0.01
