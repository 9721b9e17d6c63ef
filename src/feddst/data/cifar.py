"""CIFAR-10 and CIFAR-100 in their official python and binary forms, extracted or as archives.

The md5 of every python file, extracted or archived, and of the binary archives must be the official one. Extracted .bin
files have no md5 here: only their sizes, the layout of their records and the range of their labels are checked.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from feddst.data.archives import members
from feddst.data.cifar_classes import CIFAR10_CLASSES, CIFAR100_CLASSES
from feddst.data.dataset import Dataset
from feddst.data.download import fetch
from feddst.data.pickles import load_pickle
from feddst.data.records import StoredRecords
from feddst.errors import DataError

PIXELS = 3 * 32 * 32
SITE = "https://www.cs.toronto.edu/~kriz/"

Labelled: TypeAlias = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Form:
    """One official layout: where the files lie, how one is decoded, and how large one may be.

    `md5` holds the official sums of its files and its archive, as far as there are any.
    """

    folder: str
    archive: str
    train_files: tuple[str, ...]
    test_file: str
    decode: Callable[["Cifar", bytes, str, int], Labelled]
    largest: Callable[["Cifar", int], int]
    md5: Mapping[str, str]


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets: its files, the number of images in each, and its classes."""

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train_counts: tuple[int, ...]
    test_count: int
    label_key: str
    label_bytes: int
    forms: tuple[Form, Form]
    url: str
    md5: str


def load_cifar(cifar: Cifar, root: Path) -> Dataset:
    """The data set from the files under `root`, downloaded there if there are none."""
    form, where = _find(cifar, root) or (cifar.forms[0], fetch(cifar.url, root, cifar.md5))
    read = _from_folder if where.name == form.folder else _from_archive
    return _dataset(cifar, form, where, read(cifar, form, where))


def _find(cifar: Cifar, root: Path) -> tuple[Form, Path] | None:
    """The first form that lies under `root`, extracted before archived, and its folder or archive."""
    try:
        for form in cifar.forms:
            if (root / form.folder).is_dir():
                return form, root / form.folder
        for form in cifar.forms:
            if (root / form.archive).is_file():
                return form, root / form.archive
    except OSError as error:
        raise DataError(f"data.root: {root}: cannot be read ({error.strerror})") from None
    return None


def _dataset(cifar: Cifar, form: Form, where: Path, files: dict[str, bytes]) -> Dataset:
    def decoded(name: str, count: int) -> Labelled:
        content = files.pop(name)
        _check_md5(form, name, hashlib.md5(content, usedforsecurity=False).hexdigest(), f"{where}: {name}")
        images, labels = form.decode(cifar, content, f"{where}: {name}", count)
        if labels.min() < 0 or labels.max() >= len(cifar.classes):
            raise DataError(f"{where}: {name}: labels out of range, allowed 0 to {len(cifar.classes) - 1}")
        return images, labels

    parts = [decoded(name, count) for name, count in zip(form.train_files, cifar.train_counts, strict=True)]
    test_images, test_labels = decoded(form.test_file, cifar.test_count)
    mean, std = cifar.mean, cifar.std
    train = StoredRecords(
        _tensor([images for images, _ in parts]),
        torch.from_numpy(np.concatenate([labels for _, labels in parts])),
        mean,
        std,
    )
    test = StoredRecords(_tensor([test_images]), torch.from_numpy(test_labels), mean, std)
    return Dataset(cifar.name, train, test, cifar.classes)


def _tensor(images: list[npt.NDArray[np.uint8]]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(images).reshape(-1, 3, 32, 32))


def _check_md5(form: Form, name: str, md5: str, where: str) -> None:
    if md5 != form.md5.get(name, md5):
        raise DataError(f"{where}: damaged: its md5 is {md5}, not the official {form.md5[name]}")


def _sizes(cifar: Cifar, form: Form) -> dict[str, int]:
    counts = (*cifar.train_counts, cifar.test_count)
    files = (*form.train_files, form.test_file)
    return {file: form.largest(cifar, count) for file, count in zip(files, counts, strict=True)}


def _from_folder(cifar: Cifar, form: Form, folder: Path) -> dict[str, bytes]:
    contents = {}
    for name, largest in _sizes(cifar, form).items():
        path = folder / name
        try:
            size = path.stat().st_size
            if size > largest:
                raise DataError(f"{path}: {size} bytes, more than the {largest} a {cifar.name} file may have")
            contents[name] = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    return contents


def _from_archive(cifar: Cifar, form: Form, archive: Path) -> dict[str, bytes]:
    if archive.name in form.md5:
        _check_md5(form, archive.name, _md5_of(archive), str(archive))
    sizes = _sizes(cifar, form)
    paths = {f"{form.folder}/{name}": name for name in sizes}
    found = members(archive, wanted=paths.__contains__, largest=max(sizes.values()))
    contents = {paths[path]: content for path, content in found}
    for name in sizes:
        if name not in contents:
            raise DataError(f"{archive}: {form.folder}/{name} is missing")
    return contents


def _md5_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def _decode_python(cifar: Cifar, content: bytes, where: str, count: int) -> Labelled:
    batch = load_pickle(content, where)
    images, labels = batch.get("data"), batch.get(cifar.label_key)
    if not isinstance(images, np.ndarray) or images.shape != (count, PIXELS):
        raise DataError(f"{where}: needs 'data', {count} images of {PIXELS} bytes")
    if not isinstance(labels, list) or len(labels) != count or any(type(label) is not int for label in labels):
        raise DataError(f"{where}: needs {cifar.label_key!r}, a list of {count} integers")
    # Clipped, so that a damaged label too large for int64 is reported as out of range like any other.
    return images, np.array([min(max(label, -1), 1 << 31) for label in labels], np.int64)


def _decode_binary(cifar: Cifar, content: bytes, where: str, count: int) -> Labelled:
    expected = _binary_size(cifar, count)
    if len(content) != expected:
        raise DataError(f"{where}: {len(content)} bytes, but {count} records of {expected // count} are {expected}")
    records = np.frombuffer(content, np.uint8).reshape(count, -1)
    return records[:, cifar.label_bytes :], records[:, cifar.label_bytes - 1].astype(np.int64)


def _binary_size(cifar: Cifar, count: int) -> int:
    return count * (cifar.label_bytes + PIXELS)


def _python_size(cifar: Cifar, count: int) -> int:
    # Beside its pixels an image has labels and a file name of some 30 bytes.
    return count * (PIXELS + 256) + 65_536


CIFAR10 = Cifar(
    name="cifar10",
    classes=CIFAR10_CLASSES,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    train_counts=(10_000,) * 5,
    test_count=10_000,
    label_key="labels",
    label_bytes=1,
    forms=(
        Form(
            folder="cifar-10-batches-py",
            archive="cifar-10-python.tar.gz",
            train_files=tuple(f"data_batch_{i}" for i in range(1, 6)),
            test_file="test_batch",
            decode=_decode_python,
            largest=_python_size,
            md5={
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "40351d587109b95175f43aff81a1287e",
            },
        ),
        Form(
            folder="cifar-10-batches-bin",
            archive="cifar-10-binary.tar.gz",
            train_files=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
            test_file="test_batch.bin",
            decode=_decode_binary,
            largest=_binary_size,
            md5={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        ),
    ),
    url=SITE + "cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
)

CIFAR100 = Cifar(
    name="cifar100",
    classes=CIFAR100_CLASSES,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    train_counts=(50_000,),
    test_count=10_000,
    label_key="fine_labels",
    label_bytes=2,
    forms=(
        Form(
            folder="cifar-100-python",
            archive="cifar-100-python.tar.gz",
            train_files=("train",),
            test_file="test",
            decode=_decode_python,
            largest=_python_size,
            md5={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        ),
        Form(
            folder="cifar-100-binary",
            archive="cifar-100-binary.tar.gz",
            train_files=("train.bin",),
            test_file="test.bin",
            decode=_decode_binary,
            largest=_binary_size,
            md5={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        ),
    ),
    url=SITE + "cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
)
