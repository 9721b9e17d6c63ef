"""MNIST, bundled with the package, read from its four IDX files."""

import gzip
import hashlib
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from feddst.data.dataset import Dataset
from feddst.data.idx import parse_idx
from feddst.data.records import StoredRecords
from feddst.errors import DataError

BUNDLED = Path(__file__).parent / "bundled"

# sha256 of the decompressed contents, equal to those of the official files.
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
LARGEST = 60_000 * 28 * 28 + 16


def load_mnist(folder: Path = BUNDLED) -> Dataset:
    """MNIST: 60,000 training and 10,000 test images, uint8 [N, 1, 28, 28]."""
    found = {name: torch.from_numpy(_read(folder, name).copy()) for name in SHA256}
    train, test = (
        StoredRecords(
            found[f"{part}-images-idx3-ubyte"].unsqueeze(1),
            found[f"{part}-labels-idx1-ubyte"].long(),
            mean=(0.1307,),
            std=(0.3081,),
        )
        for part in ("train", "t10k")
    )
    return Dataset("mnist", train, test, tuple("0123456789"))


def _read(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    path = folder / f"{name}.gz"
    try:
        with gzip.open(path) as stream:
            content = stream.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}); reinstall feddst") from None
    if hashlib.sha256(content).hexdigest() != SHA256[name]:
        raise DataError(f"{path}: damaged (its sha256 is not the official one); reinstall feddst")
    return parse_idx(content, str(path), dims=3 if "idx3" in name else 1)
