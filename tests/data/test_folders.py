"""Image folders, as directories and as tar archives."""

import io
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
import torch
from PIL import Image

from feddst.data import folders
from feddst.data.folders import load_folder
from feddst.errors import DataError

Colour: TypeAlias = tuple[int, ...]
COLOURS: dict[str, Colour] = {
    "train/cat/1.png": (0, 51, 102),
    "train/cat/0.png": (255, 51, 0),
    "train/ant/0.png": (0, 51, 0),
    "test/cat/0.png": (9, 9, 9),
    "test/ant/0.png": (8, 8, 8),
}


def put(root: Path, name: str, colour: Colour = (0, 0, 0), size: tuple[int, int] = (4, 2), mode: str = "RGB") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of five images, 4 wide and 2 high, of two classes."""
    for name, colour in COLOURS.items():
        put(tmp_path / "pets", name, colour)
    return tmp_path / "pets"


def as_folder(root: Path) -> Path:
    return root


def below_a_folder(root: Path) -> Path:
    (root.parent / "outer").mkdir()
    shutil.move(root, root.parent / "outer")
    return root.parent / "outer"


def as_tar(root: Path) -> Path:
    with tarfile.open(root.with_suffix(".tar.xz"), "w:xz") as tar:
        for part in ("test", "train"):
            tar.add(root / part, part)
    return root.with_suffix(".tar.xz")


def as_tar_below_a_folder(root: Path) -> Path:
    with tarfile.open(root.with_suffix(".tgz"), "w:gz") as tar:
        tar.add(root, "./pets")
    return root.with_suffix(".tgz")


SHAPES = [as_folder, below_a_folder, as_tar, as_tar_below_a_folder]


@pytest.mark.parametrize("shape", SHAPES)
def test_images_are_read_in_order_of_class_and_name(root: Path, shape: Callable[[Path], Path]) -> None:
    (root / "README").write_text("beside the folders")
    (root / "train" / "labels.csv").write_text("not an image")
    for name in (".hidden", "Thumbs.db", "desktop.ini"):
        (root / "train" / "cat" / name).write_text("not an image")
    data = load_folder(shape(root))
    assert data.classes == ("ant", "cat")
    assert data.train_images.shape == (3, 3, 2, 4)
    assert data.train_labels.tolist() == [0, 1, 1]
    assert data.train_images[:, :, 0, 0].tolist() == [[0, 51, 0], [255, 51, 0], [0, 51, 102]]
    assert data.test_images[:, 0, 1, 3].tolist() == [8, 9]
    assert data.name in ("pets", "outer")


def test_statistics_are_those_of_the_training_images(root: Path) -> None:
    data = load_folder(root)
    # Red is 0, 1, 0: mean 1/3, variance 2/9. Green is constant 51/255 = 0.2. Blue is 0, 0, 0.4.
    assert data.mean == pytest.approx((1 / 3, 0.2, 0.4 / 3))
    assert data.std == pytest.approx(((2 / 9) ** 0.5, 1.0, 0.4 * (2 / 9) ** 0.5))
    inputs = data.inputs(data.train_images)
    assert isinstance(inputs, torch.Tensor)
    torch.testing.assert_close(inputs.mean((0, 2, 3)), torch.zeros(3))


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGBA", 4)])
def test_other_modes(tmp_path: Path, mode: str, channels: int) -> None:
    for name in ("train/a/0.png", "test/a/0.png"):
        put(tmp_path, name, (7,) * channels, mode=mode)
    data = load_folder(tmp_path)
    assert data.input_shape == (channels, 2, 4)
    assert np.unique(data.train_images).tolist() == [7]


@pytest.mark.parametrize("shape", [as_folder, as_tar])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: put(root, "train/cat/2.png", size=(4, 3)), "train/cat/2.png is 4×3 RGB but .* is 4×2 RGB"),
        (
            lambda root: put(root, "train/cat/2.png", (1,), mode="L"),
            "train/cat/2.png is 4×2 L but .* all images must have one size and mode",
        ),
        (
            lambda root: put(root, "test/cat/2.png", (1,), mode="P"),
            "test/cat/2.png has mode P, allowed are L, RGB, RGBA",
        ),
        (lambda root: put(root, "train/dog/0.png"), "class 'dog' has images in train/ but none in test/"),
        (lambda root: put(root, "test/cow/0.png"), "class 'cow' has images in test/ but none in train/"),
        (lambda root: put(root, "train/cat/more/0.png"), "train/cat/more/0.png lies too deep"),
        (
            lambda root: (root / "train/cat/2.png").write_bytes(b"no image"),
            "train/cat/2.png: cannot be read as an image",
        ),
        (
            lambda root: (root / "train/cat/2.png").write_bytes((root / "train/cat/1.png").read_bytes()[:45]),
            "train/cat/2.png: cannot be read as an image",
        ),
    ],
)
def test_a_bad_file_is_named(
    root: Path, shape: Callable[[Path], Path], spoil: Callable[[Path], object], message: str
) -> None:
    spoil(root)
    with pytest.raises(DataError, match=message) as refused:
        load_folder(shape(root))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("shape", [as_folder, as_tar])
def test_a_missing_part_is_named(root: Path, shape: Callable[[Path], Path], part: str) -> None:
    shutil.rmtree(root / part)
    if shape is as_tar:
        (root / part).mkdir()
    with pytest.raises(DataError, match=f"no (images at )?{part}/"):
        load_folder(shape(root))


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.root: .*nowhere does not exist"):
        load_folder(tmp_path / "nowhere")


def test_a_path_that_cannot_be_looked_up_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.root: .*xxx"):
        load_folder(tmp_path / ("x" * 300))


def test_two_folders_of_images_are_refused(root: Path) -> None:
    shutil.copytree(root, root.parent / "wild")
    with pytest.raises(DataError, match="several folders: pets, wild"):
        load_folder(root.parent)


def test_a_large_image_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LARGEST_IMAGE", 7)
    with pytest.raises(DataError, match="4×2 is more than 7 pixels"):
        load_folder(root)


@pytest.mark.filterwarnings("ignore")  # as a user may have it; the reader must not depend on that
@pytest.mark.parametrize("limit", [3, 7])  # Pillow warns above its limit and raises above twice that
def test_a_decompression_bomb_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(DataError, match=r"cannot be read as an image .*bomb"):
        load_folder(root)


def test_a_large_file_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LARGEST_FILE", 20)
    for path in (root, as_tar(root)):
        with pytest.raises(DataError, match="more than the 20"):
            load_folder(path)


def test_a_file_added_again_replaces_the_first(root: Path) -> None:
    path = root.with_suffix(".tar")
    with tarfile.open(path, "w") as tar:
        tar.add(root, "pets")
        put(root, "test/ant/0.png", (77, 77, 77))
        tar.add(root / "test/ant/0.png", "pets/test/ant/0.png")
    assert load_folder(path).test_images[0].flatten().tolist() == [77] * 24


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(io.BytesIO(b"text").getvalue())
    with pytest.raises(DataError, match="cannot be read as a tar archive"):
        load_folder(path)


def test_without_pillow_the_extra_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install feddst\[images\]"):
        load_folder(root)


@pytest.mark.parametrize("shape", [as_folder, as_tar])
def test_images_that_fill_the_memory_are_refused(
    root: Path, shape: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shape(root)  # five images of 4 × 2 × 3 bytes
    monkeypatch.setattr(folders, "most_unpacked", lambda packed: 5 * 24)
    load_folder(path)
    monkeypatch.setattr(folders, "most_unpacked", lambda packed: 5 * 24 - 1)
    with pytest.raises(DataError, match="its images take more than the 119 bytes allowed, once unpacked"):
        load_folder(path)
