"""The bundled MNIST, and what its reader refuses."""

import gzip
import shutil
from pathlib import Path

import pytest
import torch

from feddst.data.mnist import BUNDLED, load_mnist
from feddst.errors import DataError


def test_the_bundled_set_is_complete() -> None:
    data = load_mnist()
    assert data.train_images.shape == (60_000, 1, 28, 28)
    assert data.test_images.shape == (10_000, 1, 28, 28)
    # The first digits of MNIST are well known.
    assert data.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert data.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    inputs = data.inputs(data.train_images)
    assert isinstance(inputs, torch.Tensor)
    assert abs(float(inputs.mean())) < 1e-3
    assert abs(float(inputs.std()) - 1) < 1e-3
    assert inputs.dtype == torch.float32


def test_the_licence_lies_beside_the_files() -> None:
    assert "https://creativecommons.org/licenses/by-sa/3.0/" in (BUNDLED / "LICENSE-MNIST").read_text()


def test_damage_to_a_file_is_found(tmp_path: Path) -> None:
    name = "train-images-idx3-ubyte.gz"
    with pytest.raises(DataError, match=f"{name}: cannot be read .*reinstall feddst"):
        load_mnist(tmp_path)
    (tmp_path / name).write_bytes((BUNDLED / name).read_bytes()[:1000])
    with pytest.raises(DataError, match=f"{name}: cannot be read"):
        load_mnist(tmp_path)
    with gzip.open(tmp_path / name, "wb", compresslevel=1) as stream:
        stream.write(bytes((0, 0, 8, 3)) + bytes(12))
    with pytest.raises(DataError, match=f"{name}: damaged"):
        load_mnist(tmp_path)
    shutil.copy(BUNDLED / name, tmp_path)
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz: cannot be read"):
        load_mnist(tmp_path)
