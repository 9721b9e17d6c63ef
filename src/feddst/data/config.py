"""The options of the data: which set, where it lies, and how it is divided among clients."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from feddst.core import Registry
from feddst.data.dataset import Dataset
from feddst.errors import OptionError
from feddst.options import flatten, option, options_of


class DataSource(ABC):
    """Where a data set comes from: a value of `data.dataset`."""

    registry: "ClassVar[Registry[DataSource]]"
    name: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    """The options of `data` that it reads beside `root`, and that say nothing to others."""

    @abstractmethod
    def load(self, config: "DataConfig") -> Dataset:
        """The data set, from the package, the disk or the net; `config.root` is the user's choice of place."""


SOURCES: Registry[DataSource] = Registry("data source", DataSource)
"""Where data sets come from, by the name a user types."""
DataSource.registry = SOURCES


_OF_SOME_SOURCES = ("target", "inputs", "owner", "test", "test_share")
"""Options that only some sources read, which name them in `options`."""


@dataclass(frozen=True)
class DataConfig:
    """Which data set, and how its training images are divided among the clients."""

    dataset: str = option(
        "mnist",
        "data set; mnist and shakespeare are bundled, cifar is downloaded, fashion-mnist and har are read from where "
        "you have them, folder is your own images, file your own table or arrays",
        among=SOURCES,
    )
    root: str = option(
        "",
        "directory where data is found or put; empty: $FEDDST_DATA, else a per-user cache. "
        "For folder: the image directory or tar archive itself; for file: a CSV, TSV, Parquet or npz file; for mnist: "
        "a directory with other images in MNIST's four files",
    )
    target: str = option("", "file: the column, or array, to predict; text and whole numbers are classes")
    inputs: tuple[str, ...] = option((), "file: the columns, or the array, to predict from; none: all others")
    owner: str = option("", "file: the column that says to whom a row belongs, for data.partition owner")
    test: str = option("", "file: a second file, to test on; empty: data.test_share of the rows of the first")
    test_share: float = option(0.2, "file: share of the rows to test on, drawn once for all seeds", above=0, below=1)
    partition: Literal["classes", "shards", "dirichlet", "iid", "unequal", "owner"] = option(
        "classes",
        "classes: distinct classes for each client (the paper); shards: label-sorted shards (its published "
        "code); dirichlet: class proportions drawn with beta, all images used; iid: drawn from all images; "
        "unequal: all images used, clients' sizes drawn with beta; owner: each client is a person, a role, …",
    )
    clients: int = option(400, "number of clients", at_least=1)
    classes_per_client: int = option(2, "classes, or shards, of each client (iid: a factor of its images)", at_least=1)
    images_per_class: int = option(
        20, "training images of each class, or shard, of a client (iid: a factor of its images)", at_least=1
    )
    beta: float = option(
        0.1, "dirichlet, unequal: concentration; smaller means more uneven clients", above=0, at_most=1e6
    )
    held_out: int = option(
        0,
        "for tuning: so many training images, drawn once for all seeds, go to no client and are tested on instead of "
        "the test images; 0: the test images",
        at_least=0,
    )
    min_images: int = option(2, "dirichlet, unequal: training images of the smallest client", at_least=1)
    augmentation: int = option(
        1,
        "versions of each training image that its client holds: the image, its mirror image, then ones mirrored by "
        "chance and shifted by up to 4 pixels each way; one epoch passes over all of them",
        at_least=1,
        at_most=16,
    )
    shift_only: bool = option(
        False,
        "augmentation: shifted and never mirrored, for images whose mirror image means something else, as of digits",
    )

    def check(self) -> None:
        """Raise `OptionError` at the first option, named `data.…`, that holds a value it does not allow."""
        values = flatten(self, "data.")
        for opt in options_of(DataConfig, "data."):
            opt.check(values[opt.name])
        reads = SOURCES[self.dataset].options
        for name in _OF_SOME_SOURCES:
            if name not in reads and getattr(self, name) != getattr(DataConfig, name):
                raise OptionError(f"data.{name} has no effect with data.dataset {self.dataset}")
        if self.test and self.test_share != DataConfig.test_share:
            raise OptionError("data.test_share has no effect with data.test, a file to test on")
        if self.shift_only and self.augmentation == 1:
            raise OptionError("data.shift_only has no effect with data.augmentation 1: it says how versions are made")

    @property
    def versions(self) -> str:
        """The versions of images that clients hold, as the end of a phrase; empty if none."""
        unmirrored = ", none mirrored" if self.shift_only else ""
        return f", {self.augmentation} versions of each image{unmirrored}" if self.augmentation > 1 else ""

    @property
    def tested(self) -> str:
        """The images held out for testing, as the end of a phrase; empty if none."""
        return f", tested on {self.held_out:,} images held out" if self.held_out else ""

    @property
    def unaugmented(self) -> "DataConfig":
        """The same data without altered versions of images."""
        return replace(self, augmentation=1, shift_only=False)
