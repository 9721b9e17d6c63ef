"""Data sets in MNIST's four IDX files, gzipped or not: Fashion-MNIST, or others of the same form."""

import gzip
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feddst.data.dataset import Dataset
from feddst.errors import DataError

UBYTE = 0x08
LARGEST = 1 << 30
"""Bytes of a file, unpacked."""

FASHION = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
"""The classes of Fashion-MNIST."""
FASHION_PLACE = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package `dataset-fashion-mnist` puts it."""

Bytes = npt.NDArray[np.uint8]


class Part(NamedTuple):
    """Images uint8 [n, height, width] and their labels uint8 [n]."""

    images: Bytes
    labels: Bytes


def load_idx(folder: Path, name: str, classes: tuple[str, ...] = ()) -> Dataset:
    """The data set in a folder's four files; without `classes`, the labels that occur number them.

    `mean` and `std` are those of the training images.
    """
    train, test = (read_part(folder, part) for part in ("train", "t10k"))
    mean, std = moments(train.images)
    return Dataset.from_arrays(
        (train.images, train.labels.astype(np.int64)),
        (test.images, test.labels.astype(np.int64)),
        name=name,
        classes=classes,
        mean=(mean,),
        std=(std,),
    )


def read_part(folder: Path, part: str) -> Part:
    """The images and labels of `train` or `t10k`."""
    return Part(_read(folder, f"{part}-images-idx3-ubyte", 3), _read(folder, f"{part}-labels-idx1-ubyte", 1))


def moments(images: Bytes) -> tuple[float, float]:
    """Mean and deviation of the images' values, scaled to [0, 1], to four digits; a deviation of 0 becomes 1."""
    counts = np.bincount(images.reshape(-1), minlength=256) / max(images.size, 1)
    levels = np.arange(256) / 255
    mean = float(counts @ levels)
    return round(mean, 4), round(float(np.sqrt(counts @ (levels - mean) ** 2)), 4) or 1.0


def parse_idx(content: bytes, name: str, dims: int) -> Bytes:
    """The uint8 array with `dims` dimensions that an IDX file holds; `name` is for messages."""
    header = 4 + 4 * dims
    if len(content) < header or content[:4] != bytes((0, 0, UBYTE, dims)):
        raise DataError(f"{name}: not an IDX file of unsigned bytes with {dims} dimensions")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dims, offset=4))
    body = len(content) - header
    # Python integers, since the product of damaged sizes may not fit in 64 bits.
    expected = 1
    for size in shape:
        expected *= size
    if body != expected:
        raise DataError(f"{name}: {body} bytes of data, but its header says {expected}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read(folder: Path, name: str, dims: int) -> Bytes:
    """A file, gzipped or not, under MNIST's name for it or under the one with a point in it."""
    spellings = (name, name.replace("-idx", ".idx"))
    path = next((place for one in spellings for place in (folder / f"{one}.gz", folder / one) if place.is_file()), None)
    if path is None:
        raise DataError(f"data.root {folder} has no {name}.gz and no {name}: it needs MNIST's four files")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    if len(content) > LARGEST:
        raise DataError(f"{path}: more than {LARGEST:,} bytes")
    return parse_idx(content, str(path), dims)
