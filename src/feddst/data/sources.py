"""From options to data: finding a data set by name, and dividing it."""

import os
from pathlib import Path

from feddst.core import register
from feddst.data.augmentation import augmented
from feddst.data.cifar import CIFAR10, CIFAR100, load_cifar
from feddst.data.config import SOURCES, DataConfig, DataSource
from feddst.data.dataset import Dataset
from feddst.data.federation import Federation
from feddst.data.files import load_file
from feddst.data.folders import load_folder
from feddst.data.har import load_har
from feddst.data.idx import FASHION, FASHION_PLACE, load_idx
from feddst.data.mnist import load_mnist
from feddst.data.partition import split
from feddst.data.shakespeare import load_shakespeare
from feddst.errors import DataError, OptionError


def load(config: DataConfig) -> Dataset:
    """The data set that `config` names, from the package, the disk or the net."""
    config.check()
    return prepared(SOURCES.named(config.dataset, "data.dataset").load(config), config)


def prepared(dataset: Dataset, config: DataConfig) -> Dataset:
    """`dataset` with the images held out and the versions of each that `config` asks for; the same one if it has them.

    Raises `OptionError` if it has others.
    """
    config.check()
    _refuse_others(dataset, config)
    if config.held_out and not dataset.held_out:
        dataset = dataset.holding_out(config.held_out)
    return augmented(dataset, config.augmentation, config.shift_only)


def federate(config: DataConfig, seed: int, dataset: Dataset | None = None) -> Federation:
    """`dataset`, or the one that `config` names, divided among clients as `config` says."""
    dataset = load(config) if dataset is None else prepared(dataset, config)
    description = f"{dataset.name}, {_describe(config)}, seed {seed}"
    return Federation(dataset, split(dataset, config, seed), description)


def clients_of(config: DataConfig, seed: int, data: Dataset | Federation | None = None) -> Federation:
    """The clients of a run on `data`; a `Federation` gets the versions of images that `config` asks for.

    Raises `OptionError` if they have others, or other images held out.
    """
    if not isinstance(data, Federation):
        return federate(config, seed, data)
    config.check()
    _refuse_others(data.dataset, config, divided=True)
    return data.augmented(config.augmentation, config.shift_only)


def _refuse_others(dataset: Dataset, config: DataConfig, divided: bool = False) -> None:
    """Raise if a data set has other held-out images or versions than `config` asks for.

    Once it is `divided`, no more images can be held out.
    """
    has = f"as {dataset.name} has it"
    if config.held_out != dataset.held_out and (dataset.held_out or divided):
        raise OptionError(f"data.held_out must be {dataset.held_out}, {has}, got {config.held_out}")
    if dataset.versions == 1:
        return
    if config.augmentation != dataset.versions:
        raise OptionError(f"data.augmentation must be {dataset.versions}, {has}, got {config.augmentation}")
    if config.shift_only != dataset.shift_only:
        raise OptionError(f"data.shift_only must be {dataset.shift_only}, {has}, got {config.shift_only}")


def data_directory(config: DataConfig) -> Path:
    """Where data is found or put: `data.root`, else `$FEDDST_DATA`, else a cache directory of the user's."""
    given = config.root or os.environ.get("FEDDST_DATA", "")
    if given:
        return Path(given).expanduser()
    try:
        import pooch
    except ImportError:
        raise DataError("set data.root or FEDDST_DATA to the data's directory (pooch is not installed)") from None
    return Path(pooch.os_cache("feddst"))


def _place(config: DataConfig) -> Path:
    """What the user named as `data.root`."""
    return Path(config.root).expanduser()


@register
class MNIST(DataSource):
    """In the package; or four files of the same form in `data.root`."""

    name = "mnist"

    def load(self, config: DataConfig) -> Dataset:
        return load_idx(_place(config), "mnist") if config.root else load_mnist()


@register
class FashionMNIST(DataSource):
    """Found on the disk, as four files."""

    name = "fashion-mnist"

    def load(self, config: DataConfig) -> Dataset:
        if not config.root and not FASHION_PLACE.is_dir():
            raise DataError(
                "fashion-mnist is not in feddst: `apt install dataset-fashion-mnist` where there is Debian's, "
                "or set data.root to the directory of its four files"
            )
        return load_idx(_place(config) if config.root else FASHION_PLACE, "fashion-mnist", FASHION)


@register
class Cifar10(DataSource):
    """Downloaded, or found on the disk."""

    name = "cifar10"

    def load(self, config: DataConfig) -> Dataset:
        return load_cifar(CIFAR10, data_directory(config))


@register
class Cifar100(DataSource):
    """Downloaded, or found on the disk."""

    name = "cifar100"

    def load(self, config: DataConfig) -> Dataset:
        return load_cifar(CIFAR100, data_directory(config))


@register
class Shakespeare(DataSource):
    """In the package."""

    name = "shakespeare"

    def load(self, config: DataConfig) -> Dataset:
        return load_shakespeare()


@register
class Har(DataSource):
    """Found on the disk, or in an installed package."""

    name = "har"

    def load(self, config: DataConfig) -> Dataset:
        return load_har(_place(config) if config.root else None)


@register
class Folder(DataSource):
    """A folder or tar archive of one's own."""

    name = "folder"

    def load(self, config: DataConfig) -> Dataset:
        if not config.root:
            raise OptionError("data.root must name an image directory or tar archive when data.dataset is folder")
        return load_folder(_place(config))


@register
class File(DataSource):
    """A table, or arrays, of one's own."""

    name = "file"
    options = ("target", "inputs", "owner", "test", "test_share")

    def load(self, config: DataConfig) -> Dataset:
        return load_file(config)


def _describe(config: DataConfig) -> str:
    each, size = config.classes_per_client, config.images_per_class
    details = {
        "classes": f"{each} × {size} images",
        "shards": f"{each} × {size} images",
        "dirichlet": f"beta {config.beta:g}",
        "iid": f"{each * size} images",
        "unequal": f"beta {config.beta:g}",
        "owner": "one owner each",
    }
    divided = f"{config.clients} clients, {config.partition} partition ({details[config.partition]})"
    return f"{divided}{config.versions}{config.tested}"
