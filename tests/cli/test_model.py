"""`feddst model show` from the outside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded: what is shown is of the real data sets, whatever stands in for them elsewhere."""
    monkeypatch.setattr("feddst.runtime.anatomy.load", None)


def test_the_network_of_a_preset_is_shown(feddst: Call, tmp_path: Path) -> None:
    outcome = feddst("model show --preset table2-feddst")
    assert (outcome.code, outcome.err) == (0, "")
    first, heading, *parts = outcome.out.splitlines()
    assert first == "cifar10-cnn, as feddst begins with it (seed 0): inputs 3×32×32, 10 classes (cifar10)"
    assert " ".join(heading.split()) == ("parameter shape kept of density budget multiply-adds if dense sparse")
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in parts}
    assert (
        rows["conv2.weight"] == "16×6×5×5 735 2,400 30.6 % 735 355,740 1,161,600 yes: Conv2d"
    )  # 735·22² and 2,400·22²
    assert rows["conv2.bias"] == "16 16 16 100.0 % – – – no: a bias or other vector"
    assert rows["total"] == "156,590 782,006 20.0 % 156,354 852,747 2,293,320"
    assert parts[-3:] == [
        "forward pass: 1.71 MFLOPs for one input; 4.59 if it were dense",
        "two FLOPs for each multiply-add with a weight; biases, norms, pooling and activations are not counted",
        "engine: native",
    ]
    assert list(tmp_path.iterdir()) == []


def test_options_and_files_are_those_of_a_run(feddst: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('sparsity.level = 0.9\nmodel.dense = ["conv1"]\n')
    outcome = feddst("model show --config mine.toml --sparsity.distribution uniform --seed 3")
    assert "begins with it (seed 3)" in outcome.out
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in outcome.out.splitlines()}
    assert rows["conv1.weight"] == "10×1×5×5 250 250 100.0 % – 144,000 144,000 no: named by model.dense"
    assert rows["conv2.weight"] == "20×10×5×5 500 5,000 10.0 % 500 162,000 1,620,000 yes: Conv2d"  # 500·18²


def test_what_a_method_will_prune_is_said(feddst: Call) -> None:
    assert feddst("model show --method snip").out.splitlines()[-1] == (
        "snip keeps 52,350 of the 261,750 prunable weights after round 0"
    )


def test_a_dense_network_has_one_figure(feddst: Call) -> None:
    assert "forward pass: 4.04 MFLOPs for one input\n" in feddst("model show --method fedavgm").out


def test_the_engine_is_named_and_why_it_is_another(feddst: Call) -> None:
    outcome = feddst("model show --model.name resnet18 --data.dataset cifar10")
    engine, reason = outcome.out.splitlines()[-2:]
    assert engine == "engine: reference"
    assert reason.startswith(
        "training with PyTorch: layer 1 (BatchNorm2d) is not among the layers that the kernels know"
    )
    assert outcome.err == ""  # where a run has a warning
    assert feddst("model show --engine.kind stacked").out.splitlines()[-1] == "engine: stacked"
    engine, reason = feddst("model show --local.optimizer rmsprop --local.lr 0.001").out.splitlines()[-2:]
    assert engine == "engine: reference"
    assert "local.optimizer is rmsprop" in reason


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
