"""MNIST's four files with other images in them, and what is no IDX file."""

import gzip
import struct
from pathlib import Path

import pytest
import torch

from feddst.data.idx import FASHION, load_idx, parse_idx
from feddst.errors import DataError

SIZES = {"train": 4, "t10k": 2}


def idx(*shape: int, first: int = 0) -> bytes:
    """An array of this shape, whose values count on from `first`."""
    values = torch.arange(torch.Size(shape).numel()).add(first).to(torch.uint8).numpy().tobytes()
    return bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + values


@pytest.fixture
def files() -> dict[str, bytes]:
    """Four images of 2×3 pixels with labels 0 to 3 for training, and two, with labels 1 and 2, for testing."""
    images = {f"{part}-images-idx3-ubyte": idx(size, 2, 3) for part, size in SIZES.items()}
    return {**images, "train-labels-idx1-ubyte": idx(4), "t10k-labels-idx1-ubyte": idx(2, first=1)}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("point", [False, True])
def test_the_four_files_are_read(files: dict[str, bytes], tmp_path: Path, suffix: str, point: bool) -> None:
    for name, content in files.items():
        path = tmp_path / f"{name.replace('-idx', '.idx') if point else name}{suffix}"
        path.write_bytes(gzip.compress(content) if suffix else content)
    data = load_idx(tmp_path, "own")
    assert (data.name, data.classes, data.input_shape) == ("own", ("0", "1", "2", "3"), (1, 2, 3))
    # The 24 training values are 0 to 23: their mean is 11.5, their variance (24² - 1) / 12.
    assert data.mean == (round(11.5 / 255, 4),)
    assert data.std == (round((575 / 12) ** 0.5 / 255, 4),)
    white = data.inputs(torch.full((1, 1, 2, 3), 255, dtype=torch.uint8))
    assert isinstance(white, torch.Tensor)
    assert float(white[0, 0, 0, 0]) == pytest.approx((1 - data.mean[0]) / data.std[0])


def test_classes_have_names(files: dict[str, bytes], tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert load_idx(tmp_path, "fashion-mnist", FASHION).classes == FASHION
    with pytest.raises(DataError, match="label 2 at position 2, allowed 0 to 1"):
        load_idx(tmp_path, "two", ("one", "other"))


def test_what_is_missing_or_damaged_is_named(files: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no train-images-idx3-ubyte\.gz and no train-images-idx3-ubyte: it needs"):
        load_idx(tmp_path, "own")
    for name, content in files.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz: cannot be read \(Not a gzipped file"):
        load_idx(tmp_path, "own")


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
