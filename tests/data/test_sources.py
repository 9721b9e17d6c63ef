"""From options to data."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feddst.core.batches import form_of
from feddst.data import DataConfig, Dataset, clients_of, federate, load, sources
from feddst.data.cifar import Cifar
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


def test_the_package_imports_with_torch_and_numpy_alone() -> None:
    program = (
        "import sys\n"
        "for name in ('pooch', 'PIL', 'matplotlib', 'rich', 'safetensors'): sys.modules[name] = None\n"
        "import feddst.data, feddst.data.show\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
