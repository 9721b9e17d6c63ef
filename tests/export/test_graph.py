"""ONNX graphs: the same scores as the module's, for any number of images, and no noise on the way."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.errors import ModelError, OptionError
from feddst.export.graph import onnx_bytes
from feddst.export.inputs import Inputs

INPUTS = Inputs("vectors", (8,), "float32", ("a", "b"))


@pytest.mark.parametrize("images", [1, 7, 100])
def test_scores_are_the_modules(graph: feddst.Exported, mnist_run: feddst.Result, digits: Tensor, images: int) -> None:
    session = onnxruntime.InferenceSession(graph.path)
    [scores] = session.run(None, {"images": digits[:images].numpy()})
    expected = mnist_run.model(digits[:images]).detach().numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert (scores.argmax(1) == expected.argmax(1)).all()


def test_the_graph_says_what_it_is(graph: feddst.Exported) -> None:
    proto = onnx.load(graph.path)
    about = json.loads({entry.key: entry.value for entry in proto.metadata_props}["feddst"])
    assert about["inputs"]["std"] == [0.3081]
    assert "compared in onnxruntime" in graph.card.read_text()


def test_a_module_of_ones_own_needs_its_data(own_run: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"format onnx needs what the run was given in Python: .*model=…, data=…"):
        feddst.export(own_run.path, "onnx", tmp_path / "own.onnx")
    assert list(tmp_path.iterdir()) == []
    made = feddst.export(own_run.path, "onnx", tmp_path / "own.onnx", model=own_run.model, data=own_run.data)
    images = own_run.data.inputs(own_run.data.test_images)
    [scores] = onnxruntime.InferenceSession(made.path).run(None, {"images": images.numpy()})
    np.testing.assert_allclose(scores, own_run.result.model(images).detach().numpy(), atol=1e-5)


class Choosy(nn.Linear):
    """Looks at its input before it decides what to do."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if input.sum() > 0 else -super().forward(input)


class Pairs(nn.Linear):
    """Takes two images, no more and no less."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.reshape(2, 8))


@pytest.mark.parametrize(
    ("module", "reason"), [(Choosy, "data-dependent"), (Pairs, "takes no other number of inputs than 2")]
)
def test_a_model_that_is_no_graph_is_one_line(
    module: type[nn.Linear], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError, match=reason) as raised:
        onnx_bytes(module(8, 2).eval(), INPUTS, "{}")
    assert str(raised.value).startswith("the model cannot be exported to ONNX: ")
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_a_wrong_graph_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Linear(8, 2).eval()
    exported = torch.onnx.export

    def spoilt(module: nn.Module, *args: Any, **options: Any) -> Any:
        other = nn.Linear(8, 2).eval()
        return exported(other, *args, **options)

    monkeypatch.setattr(torch.onnx, "export", spoilt)
    with pytest.raises(ModelError, match="the ONNX graph is wrong: its scores are"):
        onnx_bytes(module, INPUTS, "{}")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_the_models_own(value: float) -> None:
    module = nn.Linear(8, 2).eval()
    with torch.no_grad():
        module.bias[1] = value
    with pytest.raises(ModelError, match="the model's own scores are not all finite numbers"):
        onnx_bytes(module, INPUTS, "{}")


def test_what_is_missing_is_named_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["feddst.export.graph"], "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"needs the package onnx: pip install 'feddst\[onnx\]'"):
        feddst.export(tmp_path, "onnx")
