from pathlib import Path

import pytest
from PIL import Image

from feddst.data import DataConfig, load
from feddst.data.sizes import Sizes, sizes_of


def test_what_a_name_says_is_so() -> None:
    dataset = load(DataConfig())
    assert sizes_of(DataConfig()) == Sizes(dataset.input_shape, 10)


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_nothing_is_loaded_for_a_name(monkeypatch: pytest.MonkeyPatch, name: str, classes: int) -> None:
    monkeypatch.setattr("feddst.data.sizes.load", None)
    assert sizes_of(DataConfig(dataset=name)) == Sizes((3, 32, 32), classes)


def test_images_of_ones_own_are_looked_at(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for label in ("cat", "dog", "owl"):
            (tmp_path / part / label).mkdir(parents=True)
            Image.new("RGB", (20, 16)).save(tmp_path / part / label / "1.png")
    own = DataConfig(dataset="folder", root=str(tmp_path), augmentation=3)
    assert sizes_of(own) == Sizes((3, 16, 20), 3)
