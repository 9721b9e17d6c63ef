"""Every format gives the trained model back, to this package and to others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

import feddst
from feddst.data import StoredRecords
from feddst.errors import OptionError
from feddst.models import ModelConfig, network
from feddst.runtime.loop import Silent


def path_of(run: feddst.Result) -> Path:
    assert run.path is not None
    return run.path


@pytest.mark.parametrize("format", ["safetensors", "torch", "sparse"])
def test_a_file_gives_the_same_model_without_a_module(
    mnist_run: feddst.Result, tmp_path: Path, digits: Tensor, format: Any
) -> None:
    made = feddst.export(path_of(mnist_run), format, tmp_path / "file")
    assert made.notes == ()
    assert made.size == made.path.stat().st_size
    assert made.dense_size == 4 * 261_840
    model = feddst.load(made.path)
    assert not model.training
    assert torch.equal(model(digits), mnist_run.model(digits))
    trained = mnist_run.model.state_dict()
    assert all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())


def test_a_run_directory_gives_its_model(mnist_run: feddst.Result, digits: Tensor) -> None:
    model = feddst.load(str(mnist_run.path))
    assert not model.training
    assert torch.equal(model(digits), mnist_run.model(digits))


def test_the_safetensors_package_reads_the_file(mnist_run: feddst.Result, tmp_path: Path, digits: Tensor) -> None:
    made = feddst.export(path_of(mnist_run), "safetensors", tmp_path / "file.safetensors")
    module = network(ModelConfig(), (1, 28, 28), 10).eval()
    module.load_state_dict(load_file(made.path))
    assert torch.equal(module(digits), mnist_run.model(digits))
    with safe_open(made.path, "pt") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pt"
    about = json.loads(metadata["feddst"])
    assert about["method"] == "feddst"
    assert about["feddst"] == feddst.__version__
    assert about["sparsity"] == pytest.approx(0.8, abs=0.001)
    assert about["accuracy"]["mean_client"] == mnist_run.rows[-1].accuracy
    assert about["network"] == {"name": "mnist-cnn", "head": "logits"}
    assert about["inputs"]["mean"] == [0.1307]


def test_pytorch_reads_the_state_dict_without_pickle(mnist_run: feddst.Result, tmp_path: Path, digits: Tensor) -> None:
    made = feddst.export(path_of(mnist_run), "torch", tmp_path / "file.pt")
    module = network(ModelConfig(), (1, 28, 28), 10).eval()
    assert str(module.load_state_dict(torch.load(made.path, weights_only=True))) == "<All keys matched successfully>"
    assert torch.equal(module(digits), mnist_run.model(digits))


def test_a_sparse_file_takes_what_is_there(mnist_run: feddst.Result, tmp_path: Path, digits: Tensor) -> None:
    sizes, errors = [], []
    for values in ("float32", "bfloat16", "float16", "q8", "q4"):
        made = feddst.export(path_of(mnist_run), "sparse", tmp_path / f"{values}.fdst", values=values)
        sizes.append(made.size / made.dense_size)
        errors.append((feddst.load(made.path)(digits) - mnist_run.model(digits)).abs().max().item())
    # A fifth of the weights, deflated, and their positions; then half of that, a quarter and an eighth, and positions.
    assert sizes[0] < 0.23
    assert sizes[0] > sizes[1] > sizes[3] > sizes[4]
    assert sizes[4] < 0.06
    assert errors[0] == 0
    assert 0 < errors[2] < errors[1] < errors[4]


def test_a_module_with_buffers_comes_back(own_run: Any, tmp_path: Path) -> None:
    images = own_run.data.inputs(own_run.data.test_images)
    expected = own_run.result.model(images)
    for format in ("safetensors", "torch", "sparse"):
        made = feddst.export(own_run.path, format, tmp_path / format)
        assert made.notes == ("the file does not say what network it is for: feddst.load needs the model with it",)
        for model in (own_run.model, own_run.model()):
            assert torch.equal(feddst.load(made.path, model=model)(images), expected)
    assert torch.equal(feddst.load(own_run.path, model=own_run.model)(images), expected)
    seen = load_file(tmp_path / "safetensors")["norm.num_batches_tracked"]
    assert (seen.dtype, seen.item()) == (torch.int64, own_run.result.model.norm.num_batches_tracked.item())


def test_data_of_another_shape_go_into_the_file_with_the_built_in_network(tmp_path: Path) -> None:
    draws = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (90, 3, 20, 24), generator=draws, dtype=torch.uint8)
    labels = torch.arange(90) % 3
    data = feddst.Dataset.from_arrays(
        (images[:60], labels[:60]), (images[60:], labels[60:]), name="tiles", mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1)
    )
    config = feddst.configure(
        rounds=1,
        data={"clients": 3, "images_per_class": 4},
        cohort={"size": 2},
        local={"epochs": 1},
        engine={"workers": 1},
    )
    result = feddst.run(config, data=data, watcher=Silent())
    made = feddst.export(result, "sparse", tmp_path / "tiles.fdst", data=data)
    model = feddst.load(made.path)
    inputs = data.inputs(data.test_images)
    assert torch.equal(model(inputs), result.model(inputs))
    assert "mean 0.5, 0.4, 0.3, divided by the std 0.2, 0.2, 0.1" in made.card.read_text()


def test_a_result_in_memory_is_known_by_its_loss(mnist_run: feddst.Result, tmp_path: Path, digits: Tensor) -> None:
    made = feddst.export(replace(mnist_run, path=None), "safetensors", tmp_path / "known.safetensors")
    assert made.notes == ()
    assert torch.equal(feddst.load(made.path)(digits), mnist_run.model(digits))
    other = replace(mnist_run.rows[-1], loss=(mnist_run.rows[-1].loss or 0) + 0.01)
    unknown = replace(mnist_run, path=None, rows=[*mnist_run.rows[:-1], other])
    made = feddst.export(unknown, "safetensors", tmp_path / "unknown.safetensors")
    assert "does not say what network it is for" in made.notes[0]


def test_other_data_of_the_same_shape_are_not_taken_for_mnist(
    mnist: feddst.Dataset, tmp_path: Path, digits: Tensor
) -> None:
    other = replace(
        mnist, name="others", test=StoredRecords(255 - mnist.test_images, mnist.test_labels, mnist.mean, mnist.std)
    )
    config = feddst.configure(
        rounds=1, data={"clients": 4}, cohort={"size": 2}, local={"epochs": 1}, engine={"workers": 1}
    )
    result = feddst.run(config, data=other, out=tmp_path / "run", watcher=Silent())
    made = feddst.export(result)
    assert made.path == tmp_path / "run" / "model.safetensors"
    assert "0.1307" not in made.card.read_text()
    assert "network" in made.notes[0]
    told = feddst.export(result, out=tmp_path / "told.safetensors", data=other)
    assert torch.equal(feddst.load(told.path)(digits), result.model(digits))
    with pytest.raises(feddst.FeddstError, match="data must be what the run was given"):
        feddst.export(result, out=tmp_path / "wrong.safetensors", data=mnist)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "safetensor"}, "format must be one of .* did you mean 'safetensors'"),
        ({"format": "sparse", "values": "q3"}, "values must be one of float32, .*, got 'q3'"),
        ({"values": "q8"}, "values must be float32 where format is safetensors, got 'q8'"),
        ({"client": 1}, "client must be left out: feddst makes one model for all clients, got 1"),
        ({"out": "."}, "out must name a file, got ."),
        ({"out": "/"}, "out must name a file, got /"),
        ({"out": "missing/model.pt"}, "out must be in a directory that exists, got missing/model.pt"),
    ],
)
def test_what_is_not_allowed_is_named(mnist_run: feddst.Result, arguments: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        feddst.export(path_of(mnist_run), **arguments)


def test_a_link_that_leads_nowhere_is_not_replaced(mnist_run: feddst.Result, tmp_path: Path) -> None:
    link = tmp_path / "model.safetensors"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OptionError, match="exists already"):
        feddst.export(path_of(mnist_run), out=link)
    assert link.is_symlink()


def test_nothing_is_overwritten(mnist_run: feddst.Result, tmp_path: Path) -> None:
    for taken in ("model.safetensors", "model.safetensors.md"):
        (tmp_path / taken).write_text("mine")
        with pytest.raises(OptionError, match=f"{taken} exists already"):
            feddst.export(path_of(mnist_run), out=tmp_path / "model.safetensors")
        assert [path.name for path in tmp_path.iterdir()] == [taken]
        (tmp_path / taken).unlink()
