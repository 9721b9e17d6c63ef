"""From options to data."""

import gzip
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from feddst.core.batches import form_of
from feddst.data import DataConfig, Dataset, clients_of, federate, load, sources
from feddst.data.cifar import Cifar
from feddst.data.har import CHANNELS
from feddst.data.sources import data_directory
from feddst.errors import DataError, OptionError

ARRAYS = Dataset.from_arrays(
    (np.zeros((40, 2, 2), np.uint8), np.arange(40) % 4), (np.zeros((8, 2, 2), np.uint8), np.arange(8) % 4)
)


def test_a_data_set_is_loaded_by_name(tmp_path: Path) -> None:
    for name in ("train/a/0.png", "test/a/0.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        Image.new("L", (2, 2), 9).save(tmp_path / name)
    assert load(DataConfig(dataset="folder", root=str(tmp_path))).classes == ("a",)
    assert load(DataConfig()).name == "mnist"


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_is_sought_under_the_root(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Path]] = []

    def load_cifar(cifar: Cifar, root: Path) -> Dataset:
        asked.append((cifar.name, root))
        return ARRAYS

    monkeypatch.setattr(sources, "load_cifar", load_cifar)
    load(DataConfig(dataset=name, root=str(tmp_path)))
    assert asked == [(name, tmp_path)]


def test_the_root_is_the_option_then_the_environment_then_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("FEDDST_DATA", "~/env")
    assert data_directory(DataConfig(root="~/option")) == Path("/home/someone/option")
    assert data_directory(DataConfig()) == Path("/home/someone/env")
    monkeypatch.delenv("FEDDST_DATA")
    assert data_directory(DataConfig()).name == "feddst"
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r"set data\.root or FEDDST_DATA"):
        data_directory(DataConfig())


def test_shakespeare_is_in_the_package() -> None:
    data = load(DataConfig(dataset="shakespeare"))
    assert (data.train_images.dtype, data.train_labels.dtype) == (torch.int32, torch.int64)
    assert (data.input_shape, data.classes, data.num_classes) == ((80,), (), 81)
    assert data.vocabulary[2:4] == ("!", '"')
    clients = federate(DataConfig(dataset="shakespeare", partition="owner", clients=3), 0, data)
    for client in range(3):
        assert data.owners is not None
        [owner] = {int(data.owners[0][at]) for at in clients.partition.train[client]}
        assert {int(data.owners[1][at]) for at in clients.partition.test[client]} == {owner}


def test_people_are_the_clients_of_har(pickled_tables: Callable[[Any], bytes], tmp_path: Path) -> None:
    labels = np.repeat([1, 6], 128 + 9 * 64)
    columns = {name: np.sin(np.arange(len(labels)) / 9) for name in CHANNELS} | {"label": labels}
    (tmp_path / "HAPT.pkl.gz").write_bytes(gzip.compress(pickled_tables({4: [columns], 9: [columns]})))
    config = DataConfig(dataset="har", root=str(tmp_path), partition="owner", clients=2)
    clients = federate(config, 0)
    assert clients.dataset.classes[:2] == ("walking", "walking upstairs")
    assert clients.dataset.input_shape == (6, 128)
    assert clients.class_counts()[:, [0, 5]].tolist() == [[7, 7], [7, 7]]


def test_mnists_files_may_hold_other_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part, size in (("train", 6), ("t10k", 2)):
        images, labels = bytes(range(size * 4)), bytes(label % 3 for label in range(size))
        sides = b"".join(side.to_bytes(4, "big") for side in (size, 2, 2))
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(bytes((0, 0, 8, 3)) + sides + images)
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1)) + sides[:4] + labels)
    own = load(DataConfig(root=str(tmp_path)))
    assert (own.name, own.classes, len(own.train)) == ("mnist", ("0", "1", "2"), 6)
    fashion = load(DataConfig(dataset="fashion-mnist", root=str(tmp_path)))
    assert (fashion.name, fashion.classes[0], fashion.num_classes) == ("fashion-mnist", "T-shirt/top", 10)
    monkeypatch.setattr(sources, "FASHION_PLACE", tmp_path)
    assert len(load(DataConfig(dataset="fashion-mnist")).train) == 6
    monkeypatch.setattr(sources, "FASHION_PLACE", tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"fashion-mnist is not in feddst: .* or set data\.root to the directory"):
        load(DataConfig(dataset="fashion-mnist"))


def test_a_folder_needs_a_root() -> None:
    with pytest.raises(OptionError, match=r"data\.root must name an image directory or tar archive"):
        load(DataConfig(dataset="folder"))


def test_a_bad_name_is_refused() -> None:
    with pytest.raises(OptionError, match=r"data\.dataset must be one of mnist.*did you mean 'mnist'"):
        load(DataConfig(dataset="minst"))


def test_federate_divides_the_given_data_set() -> None:
    clients = federate(DataConfig(clients=4, images_per_class=5), 7, ARRAYS)
    assert clients.dataset is ARRAYS
    assert clients.class_counts().sum(0).tolist() == [10, 10, 10, 10]
    assert form_of(clients.client_data(0).inputs) == "float32 [1, 2, 2]"
    assert clients.description == "arrays, 4 clients, classes partition (2 × 5 images), seed 7"


def test_a_description_says_what_is_tested_on() -> None:
    clients = federate(DataConfig(clients=4, images_per_class=2, held_out=20), 7, ARRAYS)
    assert clients.description == (
        "arrays, 4 clients, classes partition (2 × 2 images), tested on 20 images held out, seed 7"
    )


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize(("has", "asked"), [(10, 20), (10, 0), (0, 10)])
def test_images_are_held_out_as_the_config_says_or_not_at_all(has: int, asked: int, divided: bool) -> None:
    config = DataConfig(clients=4, images_per_class=1, held_out=has)
    clients = federate(config, 0, ARRAYS)
    data = clients if divided else clients.dataset
    assert clients_of(config, 0, data).dataset is clients.dataset
    other = replace(config, held_out=asked)
    if not has and not divided:
        assert clients_of(other, 0, data).dataset.held_out == asked
        return
    with pytest.raises(OptionError) as refused:
        clients_of(other, 0, data)
    assert str(refused.value) == f"data.held_out must be {has}, as arrays has it, got {asked}"


def test_federate_loads_what_is_named() -> None:
    assert federate(DataConfig(clients=3), 1).class_counts().sum() == 3 * 40
