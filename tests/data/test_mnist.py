"""The bundled MNIST, and what its reader refuses."""

import gzip
import shutil
import struct
from pathlib import Path

import pytest
import torch

from feddst.data.mnist import BUNDLED, load_mnist, parse_idx
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


def test_idx_is_read() -> None:
    content = bytes((0, 0, 8, 2)) + struct.pack(">II", 2, 3) + bytes(range(6))
    assert parse_idx(content, "x", dims=2).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x: not an IDX file of unsigned bytes with 1 dimensions"),
        (bytes((0, 0, 9, 1, 0, 0, 0, 1, 5)), "x: not an IDX file of unsigned bytes with 1 dimensions"),
        (bytes((0, 0, 8, 3, 0, 0, 0, 1, 5)), "x: not an IDX file of unsigned bytes with 1 dimensions"),
        (bytes((0, 0, 8, 1, 0, 0, 0, 2, 5)), "x: 1 bytes of data, but its header says 2"),
        (bytes((0, 0, 8, 1, 0, 0, 0, 1, 5, 6)), "x: 2 bytes of data, but its header says 1"),
    ],
)
def test_damaged_idx_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError) as refused:
        parse_idx(content, "x", dims=1)
    assert str(refused.value) == message


def test_sizes_that_overflow_are_refused() -> None:
    content = bytes((0, 0, 8, 2)) + struct.pack(">II", 1 << 31, 1 << 31)
    with pytest.raises(DataError, match=f"header says {1 << 62}"):
        parse_idx(content, "x", dims=2)


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
