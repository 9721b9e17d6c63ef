"""CIFAR in its official forms, made by hand with few images."""

import dataclasses
import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from feddst.data.cifar import CIFAR10, CIFAR100, Cifar, load_cifar
from feddst.errors import DataError


def with_md5(cifar: Cifar, md5: dict[str, str]) -> Cifar:
    """The same data set, but with these sums in place of the official ones."""
    python, binary = (dataclasses.replace(form, md5=md5) for form in cifar.forms)
    return dataclasses.replace(cifar, forms=(python, binary))


FEW = {
    "cifar10": dataclasses.replace(CIFAR10, train_counts=(3,) * 5, test_count=2),
    "cifar100": dataclasses.replace(CIFAR100, train_counts=(6,), test_count=2),
}
SMALL = {name: with_md5(cifar, {}) for name, cifar in FEW.items()}
Batch: TypeAlias = tuple[npt.NDArray[np.uint8], list[int]]


def batches(cifar: Cifar) -> list[Batch]:
    """Random images and labels for each file, the test file last."""
    rng = np.random.default_rng(5)
    counts = (*cifar.train_counts, cifar.test_count)
    return [
        (rng.integers(0, 256, (n, 3072), np.uint8), rng.integers(0, len(cifar.classes), n).tolist()) for n in counts
    ]


def python2_file(cifar: Cifar, batch: Batch) -> bytes:
    """A batch as Python 2 pickled it, opcode by opcode, which is how the official files were made."""
    images, labels = batch

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + b"K\x00\x85" + text("b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text("|") + b"NNN" + integer(-1) + integer(-1) + b"K\x00tb"
    shape = integer(len(images)) + integer(3072) + b"\x86"
    raw = b"T" + struct.pack("<i", images.size) + images.tobytes()
    array += b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"
    listed = b"](" + b"".join(integer(label) for label in labels) + b"e"
    return b"\x80\x02}(" + text("data") + array + text(cifar.label_key) + listed + b"u."


def python3_file(cifar: Cifar, batch: Batch) -> bytes:
    images, labels = batch
    return pickle.dumps({b"data": images, cifar.label_key.encode(): labels, b"filenames": [b"x.png"]}, protocol=2)


def binary_file(cifar: Cifar, batch: Batch) -> bytes:
    coarse = b"\x07" * (cifar.label_bytes - 1)
    return b"".join(coarse + bytes([label]) + image.tobytes() for image, label in zip(*batch, strict=True))


WRITERS: dict[str, tuple[int, Callable[[Cifar, Batch], bytes]]] = {
    "python2": (0, python2_file),
    "python3": (0, python3_file),
    "binary": (1, binary_file),
}


def encoded(cifar: Cifar, writer: str) -> dict[str, bytes]:
    """The content of each file of the data set."""
    number, encode = WRITERS[writer]
    form = cifar.forms[number]
    names = (*form.train_files, form.test_file)
    return {name: encode(cifar, batch) for name, batch in zip(names, batches(cifar), strict=True)}


def write(cifar: Cifar, root: Path, writer: str, archived: bool) -> Path:
    """Put the data set under `root`, as a folder or as an archive, and return that."""
    return put(cifar, root, writer, archived, encoded(cifar, writer))


def put(cifar: Cifar, root: Path, writer: str, archived: bool, files: dict[str, bytes]) -> Path:
    form = cifar.forms[WRITERS[writer][0]]
    if not archived:
        (root / form.folder).mkdir(parents=True)
        for name, content in files.items():
            (root / form.folder / name).write_bytes(content)
        return root / form.folder
    with tarfile.open(root / form.archive, "w:gz") as tar:
        for name, content in {"readme.html": b"hello", **files}.items():
            header = tarfile.TarInfo(f"{form.folder}/{name}")
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return root / form.archive


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("archived", [False, True])
def test_every_form_gives_the_same_images(tmp_path: Path, name: str, writer: str, archived: bool) -> None:
    cifar = SMALL[name]
    write(cifar, tmp_path, writer, archived)
    data = load_cifar(cifar, tmp_path)
    *train, (test_images, test_labels) = batches(cifar)
    assert data.name == name
    assert data.train_images.flatten(1).tolist() == np.concatenate([images for images, _ in train]).tolist()
    assert data.train_labels.tolist() == [label for _, labels in train for label in labels]
    assert data.test_images.flatten(1).tolist() == test_images.tolist()
    assert data.test_labels.tolist() == test_labels
    assert data.input_shape == (3, 32, 32)
    assert data.num_classes == (10 if name == "cifar10" else 100)


def sums(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.md5(content).hexdigest() for name, content in files.items()}


def flipped(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    """The same files, but one bit of the first pixel of `name` is another."""
    content = bytearray(files[name])
    first = batches(SMALL["cifar10"])[1][0][0].tobytes()
    content[content.index(first)] ^= 1
    return {**files, name: bytes(content)}


@pytest.mark.parametrize("archived", [False, True])
def test_a_flipped_pixel_is_refused_by_its_checksum(tmp_path: Path, archived: bool) -> None:
    small = SMALL["cifar10"]
    files = encoded(small, "python2")
    spoiled = flipped(files, "data_batch_2")
    official = with_md5(small, sums(files))
    where = put(small, tmp_path, "python2", archived, spoiled)
    load_cifar(small, tmp_path)  # without sums nobody notices
    with pytest.raises(DataError) as refused:
        load_cifar(official, tmp_path)
    assert str(refused.value) == (
        f"{where}: data_batch_2: damaged: "
        f"its md5 is {sums(spoiled)['data_batch_2']}, not the official {sums(files)['data_batch_2']}"
    )


@pytest.mark.parametrize("archived", [False, True])
def test_files_with_the_right_checksums_are_loaded(tmp_path: Path, archived: bool) -> None:
    small = SMALL["cifar10"]
    files = encoded(small, "python2")
    put(small, tmp_path, "python2", archived, files)
    data = load_cifar(with_md5(small, sums(files)), tmp_path)
    assert data.test_labels.tolist() == batches(small)[-1][1]


def test_the_checksum_of_a_binary_archive_is_checked(tmp_path: Path) -> None:
    small = SMALL["cifar10"]
    files = encoded(small, "binary")
    archive = put(small, tmp_path, "binary", True, files)
    official = with_md5(small, sums({archive.name: archive.read_bytes()}))
    assert load_cifar(official, tmp_path).test_labels.tolist() == batches(small)[-1][1]
    put(small, tmp_path, "binary", True, flipped(files, "data_batch_2.bin"))
    load_cifar(small, tmp_path)  # without a sum nobody notices
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: damaged: its md5 is .*, not the official "):
        load_cifar(official, tmp_path)


def test_a_right_checksum_does_not_let_a_pickle_call_anything(tmp_path: Path) -> None:
    small = SMALL["cifar10"]
    files = {**encoded(small, "python2"), "test_batch": b"cos\nsystem\n(S'false'\ntR."}
    put(small, tmp_path, "python2", False, files)
    with pytest.raises(DataError, match=r"test_batch: .*the name os\.system is not allowed"):
        load_cifar(with_md5(small, sums(files)), tmp_path)


@pytest.mark.parametrize("name", FEW)
def test_every_python_file_has_an_official_checksum(tmp_path: Path, name: str) -> None:
    few, form = FEW[name], FEW[name].forms[0]
    files = encoded(few, "python2")
    put(few, tmp_path, "python2", False, files)
    for file in files:
        alone = with_md5(few, {**sums(files), file: form.md5[file]})
        with pytest.raises(DataError, match=f": {file}: damaged: .*, not the official {form.md5[file]}$"):
            load_cifar(alone, tmp_path)
    assert len(set(form.md5.values())) == len(files)


def test_a_binary_archive_of_cifar10_must_be_the_official_one(tmp_path: Path) -> None:
    write(FEW["cifar10"], tmp_path, "binary", archived=True)
    with pytest.raises(DataError, match=r"not the official c32a1d4ab5d03f1284b67883e8d87530$"):
        load_cifar(FEW["cifar10"], tmp_path)


def test_the_official_sizes_and_names() -> None:
    assert sum(CIFAR10.train_counts) == sum(CIFAR100.train_counts) == 50_000
    assert len(CIFAR100.classes) == len(set(CIFAR100.classes)) == 100
    assert list(CIFAR100.classes) == sorted(CIFAR100.classes)
    assert CIFAR100.classes.index("worm") == 99
    assert CIFAR10.classes.index("truck") == 9
    # The published sizes of data_batch_1.bin, and of CIFAR-100's pickled training file, which must be allowed.
    assert CIFAR10.forms[1].largest(CIFAR10, 10_000) == 30_730_000
    assert CIFAR100.forms[0].largest(CIFAR100, 50_000) > 155_249_918


@pytest.mark.parametrize("archived", [False, True])
def test_a_missing_file_is_named(tmp_path: Path, archived: bool) -> None:
    path = write(SMALL["cifar10"], tmp_path, "binary", archived=False)
    (path / "data_batch_3.bin").unlink()
    if archived:
        with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as tar:
            tar.add(path, path.name)
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    with pytest.raises(DataError, match=r"data_batch_3\.bin.*(is missing|No such file)"):
        load_cifar(SMALL["cifar10"], tmp_path)


def test_a_short_or_long_binary_file_is_refused(tmp_path: Path) -> None:
    path = write(SMALL["cifar10"], tmp_path, "binary", archived=False) / "test_batch.bin"
    content = path.read_bytes()
    path.write_bytes(content[:3073])  # a whole record, but only one of two
    with pytest.raises(DataError, match=r"test_batch\.bin: 3073 bytes, but 2 records of 3073 are 6146"):
        load_cifar(SMALL["cifar10"], tmp_path)
    path.write_bytes(content + b"x")
    with pytest.raises(DataError, match=r"test_batch\.bin: 6147 bytes, more than the 6146"):
        load_cifar(SMALL["cifar10"], tmp_path)


@pytest.mark.parametrize("writer", ["python3", "binary"])
def test_a_label_out_of_range_is_refused(tmp_path: Path, writer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled = batches(SMALL["cifar10"])
    spoiled[1][1][2] = 10
    monkeypatch.setitem(write.__globals__, "batches", lambda cifar: spoiled)
    write(SMALL["cifar10"], tmp_path, writer, archived=False)
    with pytest.raises(DataError, match=r"data_batch_2(\.bin)?: labels out of range, allowed 0 to 9"):
        load_cifar(SMALL["cifar10"], tmp_path)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"labels": [1, 2]}, "needs 'data', 2 images of 3072 bytes"),
        ({"data": np.zeros((3, 3072), np.uint8), "labels": [1, 2]}, "needs 'data', 2 images of 3072 bytes"),
        ({"data": [1, 2], "labels": [1, 2]}, "needs 'data', 2 images of 3072 bytes"),
        ({"data": np.zeros((2, 3072), np.uint8)}, "needs 'labels', a list of 2 integers"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "needs 'labels', a list of 2 integers"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1, "x"]}, "needs 'labels', a list of 2 integers"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 1 << 70]}, "labels out of range, allowed 0 to 9"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1, -(1 << 70)]}, "labels out of range, allowed 0 to 9"),
    ],
)
def test_a_damaged_python_file_is_refused(tmp_path: Path, batch: dict[str, Any], message: str) -> None:
    path = write(SMALL["cifar10"], tmp_path, "python3", archived=False)
    (path / "test_batch").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(DataError, match=f"test_batch: {message}"):
        load_cifar(SMALL["cifar10"], tmp_path)


def test_an_archive_with_a_huge_member_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
        header = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        header.size = 2_000_000
        tar.addfile(header, io.BytesIO(bytes(header.size)))
    with pytest.raises(DataError, match="data_batch_1 has 2000000 bytes, more than"):
        load_cifar(SMALL["cifar10"], tmp_path)


def test_a_root_that_cannot_be_looked_up_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="xxx"):
        load_cifar(CIFAR10, tmp_path / ("x" * 300))


def test_nothing_outside_the_archive_is_touched(tmp_path: Path) -> None:
    path = write(SMALL["cifar10"], tmp_path, "binary", archived=True)
    before = set(tmp_path.rglob("*"))
    load_cifar(SMALL["cifar10"], tmp_path)
    assert set(tmp_path.rglob("*")) == before == {path}
