from pathlib import Path

import pytest
import torch
from PIL import Image

from feddst.data import DataConfig, load
from feddst.data.sizes import Sizes, sizes_of


@pytest.mark.parametrize("name", ["mnist", "shakespeare"])
def test_what_a_name_says_is_so(name: str) -> None:
    config = DataConfig(dataset=name)
    dataset = load(config)
    example = dataset.example()
    assert isinstance(example, torch.Tensor)
    assert sizes_of(config) == Sizes(tuple(example.shape[1:]), dataset.num_classes, example.dtype)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("cifar10", Sizes((3, 32, 32), 10)),
        ("cifar100", Sizes((3, 32, 32), 100)),
        ("fashion-mnist", Sizes((1, 28, 28), 10)),
        ("har", Sizes((6, 128), 12)),
        ("shakespeare", Sizes((80,), 81, torch.int32)),
    ],
)
def test_nothing_is_loaded_for_a_name(monkeypatch: pytest.MonkeyPatch, name: str, sizes: Sizes) -> None:
    monkeypatch.setattr("feddst.data.sizes.load", None)
    assert sizes_of(DataConfig(dataset=name)) == sizes


def test_images_of_ones_own_are_looked_at(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for label in ("cat", "dog", "owl"):
            (tmp_path / part / label).mkdir(parents=True)
            Image.new("RGB", (20, 16)).save(tmp_path / part / label / "1.png")
    own = DataConfig(dataset="folder", root=str(tmp_path), augmentation=3)
    assert sizes_of(own) == Sizes((3, 16, 20), 3)
