"""`feddst model show` from the outside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded: what is shown is of the real data sets, whatever stands in for them elsewhere."""
    monkeypatch.setattr("feddst.data.sizes.load", None)


def test_the_network_of_a_preset_is_shown(feddst: Call, tmp_path: Path) -> None:
    outcome = feddst("model show --preset table2-feddst")
    assert (outcome.code, outcome.err) == (0, "")
    first, heading, *parts = outcome.out.splitlines()
    assert first == "cifar10-cnn, as feddst begins with it (seed 0): inputs 3×32×32, 10 classes (cifar10)"
    assert heading.split() == ["parameter", "shape", "kept", "of", "density", "multiply-adds", "if", "dense", "sparse"]
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in parts}
    assert rows["conv2.weight"] == "16×6×5×5 735 2,400 30.6 % 355,740 1,161,600 yes"  # 735·22² and 2,400·22²
    assert rows["conv2.bias"] == "16 16 16 100.0 % – – no: a bias or other vector"
    assert rows["total"] == "156,590 782,006 20.0 % 852,747 2,293,320"
    assert parts[-2:] == [
        "forward pass: 1.71 MFLOPs for one image; 4.59 if it were dense",
        "two FLOPs for each multiply-add with a weight; biases, norms, pooling and activations are not counted",
    ]
    assert list(tmp_path.iterdir()) == []


def test_options_and_files_are_those_of_a_run(feddst: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('sparsity.level = 0.9\nmodel.dense = ["conv1"]\n')
    outcome = feddst("model show --config mine.toml --sparsity.distribution uniform --seed 3")
    assert "begins with it (seed 3)" in outcome.out
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in outcome.out.splitlines()}
    assert rows["conv1.weight"] == "10×1×5×5 250 250 100.0 % 144,000 144,000 no: named by model.dense"
    assert rows["conv2.weight"] == "20×10×5×5 500 5,000 10.0 % 162,000 1,620,000 yes"  # 500·18²


def test_what_a_method_will_prune_is_said(feddst: Call) -> None:
    assert feddst("model show --method snip").out.splitlines()[-1] == (
        "snip keeps 52,350 of the 261,750 prunable weights after round 0"
    )


def test_a_dense_network_has_one_figure(feddst: Call) -> None:
    assert "forward pass: 4.04 MFLOPs for one image\n" in feddst("model show --method fedavgm").out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("model show --sparsity.level 1", "sparsity.level must be in [0, 1), got 1.0"),
        ("model show --method fedavgm --sparsity.level 0.5", "sparsity.level has no effect on fedavgm"),
        ("model show --model.name resnet", "model.name must be one of auto, mnist-cnn"),
        ("model show --model.dense fc9", "model.dense names 'fc9', but the model's parameters are conv1.weight"),
        ("model show --preset table2", "preset table2 is for `feddst compare`, not for `feddst run`"),
        ("model show --out here", "unknown option --out: nothing is written"),
        ("model show --resume", "unknown option --resume: nothing is trained"),
        ("model show runs/mine", "unexpected argument 'runs/mine'"),
    ],
)
def test_bad_input_is_one_line(feddst: Call, line: str, message: str) -> None:
    outcome = feddst(line)
    assert outcome.code == 2
    [complaint] = outcome.err.splitlines()
    assert complaint.startswith("feddst: ")
    assert message in complaint
