"""What `feddst.load` is given in place of a model: each gets one line that says what to do."""

import contextlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

import feddst
from feddst.errors import CheckpointError, FeddstError, ModelError
from feddst.runtime.loop import Silent
from feddst.runtime.tensorfile import pack

NETWORK: dict[str, Any] = {
    "format": 1,
    "network": {"name": "mnist-cnn", "head": "logits"},
    "inputs": {"shape": [1, 14, 14], "classes": ["a", "b"], "dtype": "float32"},
}


def described(**changes: Any) -> bytes:
    """A file without tensors whose description is changed."""
    return pack({}, {"feddst": json.dumps({**NETWORK, **changes})})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "header is cut short"),
        (b"PK\x03\x04 and nothing more", "cannot be read as a state dict"),
        (pack({}, {}), "give the model as `model`"),
        (pack({}, {"feddst": "{"}), "description is not JSON"),
        (pack({}, {"feddst": "[" * 100_000}), "description is not JSON"),
        (pack({}, {"feddst": "[]"}), "not of format 1"),
        (described(format=2), "not of format 1"),
        (described(network=None), "give the model as `model`"),
        (described(network=[1]), "does not say what network it is for"),
        (described(network={"name": "vgg", "head": "logits"}), "network is 'vgg' with head 'logits'"),
        (described(network={"name": ["mnist-cnn"], "head": "logits"}), "which is not known here"),
        (described(network={"name": "mnist-cnn", "head": "both"}), "with head 'both'"),
        (described(inputs={**NETWORK["inputs"], "shape": [1, 2**40, 14]}), "no sensible shape"),
        (described(inputs={**NETWORK["inputs"], "shape": []}), "no sensible shape"),
        (described(inputs={**NETWORK["inputs"], "shape": [1, True, 14]}), "no sensible shape"),
        (described(inputs={**NETWORK["inputs"], "classes": []}), "classes are not named"),
        (described(inputs={**NETWORK["inputs"], "dtype": "float8"}), "unknown kind 'float8'"),
        (described(inputs={**NETWORK["inputs"], "shape": [1, 5, 5]}), "does not take inputs of the shape"),
        # Were its weights made before they are compared, this would take 40 TiB.
        (described(inputs={**NETWORK["inputs"], "shape": [1, 2**20, 2**18]}), "for which there is no value"),
    ],
)
def test_a_file_that_is_not_a_model_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(FeddstError, match=f"file cannot be loaded: .*{reason}"):
        feddst.load(tmp_path / "file")


def test_places_without_a_model_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file"):
        feddst.load(tmp_path / "missing")
    with pytest.raises(CheckpointError, match="holds no run"):
        feddst.load(tmp_path)
    for name in ("feddst-seed1", "fedavgm-seed0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").touch()
    with pytest.raises(CheckpointError, match=r"; it holds runs: choose one of fedavgm-seed0, feddst-seed1$"):
        feddst.load(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"graph")
    with pytest.raises(CheckpointError, match="programs such as onnxruntime"):
        feddst.load(tmp_path / "model.onnx")


def test_a_run_of_ones_own_model_asks_for_it(own_run: Any) -> None:
    with pytest.raises(ModelError, match="begun in Python with a model or data of its own: give the model"):
        feddst.load(own_run.path)


def test_a_named_data_set_need_not_be_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDDST_DATA", str(tmp_path / "nothing"))
    draws = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (110, 3, 32, 32), generator=draws, dtype=torch.uint8)
    data = feddst.Dataset.from_arrays((images[:80], torch.arange(80) % 10), (images[80:], torch.arange(30) % 10))
    config = feddst.configure(
        rounds=1,
        data={"dataset": "cifar10", "clients": 3, "images_per_class": 4},
        model={"head": "softmax"},
        cohort={"size": 2},
        local={"epochs": 1},
        engine={"workers": 1},
    )
    result = feddst.run(config, data=data, out=tmp_path / "run", watcher=Silent())
    inputs = data.inputs(data.test_images)
    assert torch.equal(feddst.load(tmp_path / "run")(inputs), result.model(inputs))
    card = feddst.export(tmp_path / "run").card.read_text()
    assert "The network cifar10-cnn" in card
    assert "That is what the run's config says; the data were not here to compare." in card


def test_another_model_is_refused_with_the_first_difference(own_run: Any) -> None:
    class Wider(own_run.model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(12, 5)

    with pytest.raises(ModelError, match=r"its last.weight has shape \[5, 12\], the trained one \[4, 12\]"):
        feddst.load(own_run.path, model=Wider)
    with pytest.raises(ModelError, match=r"it has 0.weight, for which there is no value"):
        feddst.load(own_run.path, model=nn.Sequential(nn.Linear(36, 4)))
    with pytest.raises(ModelError, match=r"model must be an nn.Module or a function"):
        feddst.load(own_run.path, model=3)  # type: ignore[arg-type]


def test_the_given_module_is_not_changed(own_run: Any) -> None:
    module = own_run.model()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    loaded = feddst.load(own_run.path, model=module)
    assert loaded is not module
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_files_of_others_go_into_ones_own_module(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    save_file(module.state_dict(), tmp_path / "theirs.safetensors")
    torch.save(module.state_dict(), tmp_path / "theirs.pt")
    for name in ("theirs.safetensors", "theirs.pt"):
        assert torch.equal(feddst.load(tmp_path / name, model=nn.Linear(3, 2)).weight, module.weight)  # type: ignore[arg-type]
        with pytest.raises(ModelError, match="does not say what network"):
            feddst.load(tmp_path / name)


class Tied(nn.Module):
    """Two names for one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.last.weight = self.first.weight


def test_a_tensor_may_be_there_under_each_of_its_names(tmp_path: Path) -> None:
    module = Tied()
    torch.save(module.state_dict(), tmp_path / "tied.pt")
    loaded = feddst.load(tmp_path / "tied.pt", model=Tied)
    assert torch.equal(loaded.get_parameter("first.weight"), module.first.weight)
    with pytest.raises(ModelError, match=r"it has no 'last\.bias'"):
        feddst.load(tmp_path / "tied.pt", model=lambda: nn.ModuleDict({"first": nn.Linear(3, 3)}))


@pytest.mark.parametrize(
    "value", [torch.zeros(1, 1).to_sparse(), torch.zeros(1, 1, device="meta"), torch.zeros(1, 1, dtype=torch.complex64)]
)
def test_tensors_without_plain_numbers_are_refused(tmp_path: Path, value: torch.Tensor) -> None:
    torch.save({"weight": value, "bias": torch.zeros(1)}, tmp_path / "odd.pt")
    with pytest.raises(CheckpointError, match="tensors of real numbers by name"):
        feddst.load(tmp_path / "odd.pt", model=nn.Linear(1, 1))


def test_a_state_dict_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"a": Path("x")}, tmp_path / "code.pt")
    with pytest.raises(CheckpointError, match="cannot be read as a state dict"):
        feddst.load(tmp_path / "code.pt", model=nn.Linear(1, 1))
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    with pytest.raises(CheckpointError, match="it is not a state dict"):
        feddst.load(tmp_path / "list.pt", model=nn.Linear(1, 1))
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(CheckpointError, match="cannot be read as a state dict"):
        feddst.load(tmp_path / "other.pt", model=nn.Linear(1, 1))


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_state_dict_that_would_unpack_to_more_than_it_holds_is_refused(tmp_path: Path, compression: int) -> None:
    torch.save({"weight": torch.zeros(2**18, 1), "bias": torch.zeros(2**18)}, tmp_path / "plain.pt")
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / "small.pt", "w", compression) as small,
    ):
        for entry in plain.infolist():
            small.writestr(entry.filename, plain.read(entry.filename))
    assert (tmp_path / "small.pt").stat().st_size < 20_000
    assert feddst.load(tmp_path / "plain.pt", model=nn.Linear(1, 2**18)).get_parameter("bias").sum() == 0
    with pytest.raises(CheckpointError, match=r"cannot be read as a state dict: .* would unpack to 2,\d{3},\d{3}"):
        feddst.load(tmp_path / "small.pt", model=nn.Linear(1, 2**18))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_of_any_kind_raises_an_error_of_ours(tmp_path: Path, data: st.DataObject) -> None:
    content = {
        "torch": lambda: _saved(tmp_path),
        "safetensors": lambda: pack(nn.Linear(2, 2).state_dict(), {"feddst": json.dumps(NETWORK)}),
    }[data.draw(st.sampled_from(["torch", "safetensors"]))]()
    whole = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "damaged").write_bytes(whole)
    with contextlib.suppress(FeddstError):
        feddst.load(tmp_path / "damaged", model=nn.Linear(2, 2))


def _saved(tmp_path: Path) -> bytes:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "whole.pt")
    return (tmp_path / "whole.pt").read_bytes()
