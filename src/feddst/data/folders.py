"""Your own images: `train/<class>/*` and `test/<class>/*` in a directory or a tar archive."""

import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from feddst.data.archives import members, most_unpacked
from feddst.data.dataset import Dataset
from feddst.data.progress import Meter
from feddst.data.records import StoredRecords
from feddst.errors import DataError

SPLITS = ("train", "test")
MODES = ("L", "RGB", "RGBA")
LITTER = {"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"}
"""Files that file managers leave among images, in lower case; dotfiles are skipped too."""
LARGEST_FILE = 256 << 20
LARGEST_IMAGE = 64_000_000


def load_folder(path: Path) -> Dataset:
    """The images of a directory or tar archive, uint8 [N, C, H, W]; classes are in order of their names.

    `mean` and `std` are those of the training images.
    """
    found = _files(path)
    return _Images(path, most_unpacked(found.size)).read(found).dataset()


@dataclass(frozen=True)
class _Place:
    """Where an image lies: the folder above the splits, or none, then split, class and file name."""

    top: str
    split: str
    label: str
    file: str


@dataclass(frozen=True)
class _Files:
    """Name and content of each image file, their bytes on disk, and their number, where known."""

    contents: Iterator[tuple[str, bytes]]
    size: int
    total: int | None = None


@dataclass
class _Images:
    """The images read so far, by place, and how many of the allowed bytes they take."""

    path: Path
    allowed: int
    taken: int = 0
    pixels: dict[_Place, npt.NDArray[np.uint8]] = field(default_factory=dict)
    first: tuple[str, str] | None = None

    def read(self, found: _Files) -> "_Images":
        image_module = _pillow()
        with warnings.catch_warnings(), Meter(f"reading {self.path.name}", found.total) as meter:
            warnings.simplefilter("error", image_module.DecompressionBombWarning)
            for name, content in found.contents:
                place = _place(self.path, name)
                assert place is not None
                self.pixels[place] = self._decode(image_module, name, content)
                meter.update()
        return self

    def dataset(self) -> Dataset:
        tops = {place.top for place in self.pixels}
        if len(tops) > 1:
            raise DataError(f"{self.path}: train/ and test/ lie in several folders: {', '.join(sorted(tops))}")
        classes = self._classes()
        train_images, train_labels = self._stack("train", classes)
        test_images, test_labels = self._stack("test", classes)
        mean, std = _channel_statistics(train_images)
        train = StoredRecords(train_images, train_labels, mean, std)
        test = StoredRecords(test_images, test_labels, mean, std)
        return Dataset(self.path.name.split(".")[0], train, test, classes)

    def _classes(self) -> tuple[str, ...]:
        names = {split: {place.label for place in self.pixels if place.split == split} for split in SPLITS}
        for split in SPLITS:
            if not names[split]:
                raise DataError(f"{self.path}: no images at {split}/<class>/<file>")
        odd = sorted(names["train"] ^ names["test"])
        if odd:
            here, there = SPLITS if odd[0] in names["train"] else SPLITS[::-1]
            raise DataError(f"{self.path}: class {odd[0]!r} has images in {here}/ but none in {there}/")
        return tuple(sorted(names["train"]))

    def _stack(self, split: str, classes: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        places = sorted(
            (place for place in self.pixels if place.split == split),
            key=lambda place: (place.label, place.file),
        )
        number = {label: i for i, label in enumerate(classes)}
        images = np.stack([self.pixels.pop(place) for place in places])
        images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
        labels = np.array([number[place.label] for place in places], np.int64)
        return torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels)

    def _decode(self, image_module: Any, name: str, content: bytes) -> npt.NDArray[np.uint8]:
        where = f"{self.path}: {name}"
        try:
            with image_module.open(io.BytesIO(content)) as image:
                if image.width * image.height > LARGEST_IMAGE:
                    raise DataError(f"{where}: {image.width}×{image.height} is more than {LARGEST_IMAGE} pixels")
                self._check_form(name, f"{image.width}×{image.height}", image.mode)
                self._count(image.width * image.height * len(image.mode))
                return np.array(image, np.uint8)
        except DataError:
            raise
        except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
            reason = str(error).partition("<")[0].strip() or type(error).__name__
            raise DataError(f"{where}: cannot be read as an image ({reason})") from None

    def _check_form(self, name: str, size: str, mode: str) -> None:
        if mode not in MODES:
            raise DataError(f"{self.path}: {name} has mode {mode}, allowed are {', '.join(MODES)}")
        form = f"{size} {mode}"
        if self.first is None:
            self.first = (name, form)
        elif self.first[1] != form:
            raise DataError(
                f"{self.path}: {name} is {form} but {self.first[0]} is {self.first[1]}; "
                "all images must have one size and mode"
            )

    def _count(self, pixels: int) -> None:
        """Small files may hold images that fill the memory."""
        self.taken += pixels
        if self.taken > self.allowed:
            raise DataError(f"{self.path}: its images take more than the {self.allowed} bytes allowed, once unpacked")


def _files(path: Path) -> _Files:
    try:
        if path.is_dir():
            return _directory_files(path)
        if path.is_file():
            contents = members(path, lambda name: _place(path, name) is not None, LARGEST_FILE)
            return _Files(contents, path.stat().st_size)
    except OSError as error:
        raise DataError(f"data.root: {path}: cannot be read ({error.strerror})") from None
    raise DataError(f"data.root: {path} does not exist; it must be an image directory or a tar archive")


def _directory_files(path: Path) -> _Files:
    tops = [path] if (path / "train").is_dir() else [top for top in path.iterdir() if (top / "train").is_dir()]
    if not tops:
        raise DataError(f"data.root: {path} has no train/ folder; it needs train/<class>/* and test/<class>/*")
    found = sorted(file for top in tops for split in SPLITS for file in (top / split).rglob("*") if file.is_file())
    names = [file.relative_to(path).as_posix() for file in found]
    wanted = [name for name in names if _place(path, name) is not None]
    size = sum((path / name).stat().st_size for name in wanted)
    return _Files(((name, _content(path / name)) for name in wanted), size, len(wanted))


def _content(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise DataError(f"{path}: {size} bytes, more than the {LARGEST_FILE} an image file may have")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def _place(path: Path, name: str) -> _Place | None:
    """Where the file `name` belongs, or None if it is hidden, litter, or lies beside the class folders."""
    parts = PurePosixPath(name).parts
    if any(part.startswith(".") or part.lower() in LITTER for part in parts):
        return None
    top, inside = ("", parts) if parts[0] in SPLITS else (parts[0], parts[1:])
    if len(inside) < 3 or inside[0] not in SPLITS:
        return None
    if len(inside) > 3:
        raise DataError(f"{path}: {name} lies too deep, images must be at {inside[0]}/<class>/<file>")
    return _Place(top, *inside)


def _channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 images [N, C, H, W], on the scale [0, 1]."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, stds = [], []
    for channel in images.unbind(1):
        share = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        mean = float((share * values).sum())
        std = float((share * (values - mean) ** 2).sum().sqrt())
        means.append(mean)
        stds.append(std if std > 1e-6 else 1.0)  # a blank channel, such as an opaque alpha, is only centred
    return tuple(means), tuple(stds)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise DataError("reading image folders needs Pillow: pip install feddst[images]") from None
    return Image
