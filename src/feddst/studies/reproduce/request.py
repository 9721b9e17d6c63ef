"""What reproductions and studies have in common: rows to be made with several seeds each."""

import math
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from feddst.engines import EngineConfig
from feddst.errors import OptionError
from feddst.options import check_list, flatten, hint, option, validate
from feddst.runtime.config import RunConfig, config_of
from feddst.runtime.presets import TABLES, Row

CHECKPOINT_EVERY = 100
CLASSES = {"mnist": 10, "cifar10": 10, "cifar100": 100}
"""How many classes each data set that is found by name has."""
TITLES = {table.dataset: table.title for table in TABLES} | {
    "fashion-mnist": "Fashion-MNIST",
    "har": "activities (HAPT)",
    "shakespeare": "Shakespeare's plays",
}
"""What data sets are called."""


@dataclass(frozen=True)
class Source:
    """Where the images come from."""

    dataset: Literal["auto", "folder"] = option(
        "auto", "auto: the data set that is meant, as in `feddst run`; folder: your own copy of it, under data.root"
    )
    root: str = option(
        "", "where data is found or put, as in `feddst run`; for folder: the image directory or tar archive"
    )


@dataclass(frozen=True)
class Request:
    """Which rows, how often, and where they are computed."""

    target: str
    seeds: int = option(10, "runs of every row, each with a seed of its own", at_least=1, at_most=1000)
    first_seed: int = option(0, "the first of these seeds; the others follow it", at_least=0, at_most=10**9)
    rows: tuple[str, ...] = option((), "only these rows, by name; empty: all of them")
    rounds: int = option(0, "stop every run after this many rounds; 0: at the last upload cap", at_least=0)
    minutes: float = option(
        0.0, "stop after so many minutes, with exit code 3; the same command goes on; 0: no limit", at_least=0
    )
    at_once: int = option(
        1,
        "rows played at the same time, each with an engine of its own; if more than there are, seeds of a row",
        at_least=1,
    )
    data: Source = Source()
    engine: EngineConfig = EngineConfig()

    @property
    @abstractmethod
    def command(self) -> str:
        """The command of the program that this is for."""

    @property
    def subject(self) -> str:
        """The target that records name."""
        return self.target

    @property
    @abstractmethod
    def reading(self) -> str:
        """Which reading the settings follow."""

    @property
    @abstractmethod
    def name(self) -> str:
        """A name for directories."""

    @property
    @abstractmethod
    def upload_caps(self) -> tuple[float, ...]:
        """Caps on the upload, in GiB, at which rows are compared; runs end at the last of them."""

    @property
    @abstractmethod
    def dataset(self) -> str:
        """The data set that is meant, by its name."""

    @property
    def data_title(self) -> str:
        """The data set in words."""
        return TITLES.get(self.dataset, "images")

    @property
    def classes(self) -> int | None:
        """How many classes the data set must have; None: any."""
        return CLASSES.get(self.dataset)

    @property
    def title(self) -> str:
        """What all rows together are called, if they have such a name."""
        return ""

    @property
    def usual_row(self) -> str:
        """The row that all others are compared with; empty where there are other comparisons."""
        return ""

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        """Pairs of rows to be compared, where they are chosen one by one."""
        return ()

    @property
    def varied(self) -> tuple[str, str]:
        """The option that the rows vary, and its symbol; empty where they differ in other ways."""
        return "", ""

    @abstractmethod
    def all_rows(self) -> list[Row]:
        """Every row there is."""

    @abstractmethod
    def options(self, row: Row) -> Mapping[str, Any]:
        """The options of a row's runs, up to the largest cap."""

    def check(self) -> None:
        """Raise `OptionError` at the first value that is not allowed."""
        validate(self)
        if self.data.dataset == "folder" and not self.data.root:
            raise OptionError("data.root must name an image directory or tar archive when data.dataset is folder")
        if self.rows:
            names = [row.name for row in self.all_rows()]
            check_list("rows", self.rows)
            for name in self.rows:
                if name not in names:
                    raise OptionError(f"rows must be among {', '.join(names)}, got {name!r}{hint(name, names)}")
        self.engine.torch_device()
        for row in self.all_rows():
            self.check_row(row)

    def check_row(self, row: Row) -> None:
        """Raise `OptionError` at the first value that a row's runs are not allowed."""
        self.run_config(row, 0).check()

    def wanted_rows(self) -> list[Row]:
        """The rows asked for."""
        return [row for row in self.all_rows() if not self.rows or row.name in self.rows]

    def wanted_seeds(self) -> range:
        """The seeds asked for."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def run_config(self, row: Row, seed: int, changes: Mapping[str, Any] | None = None) -> RunConfig:
        """One run of a row; `changes` are options that differ from what is asked for, for tries on small data."""
        options = {**self.options(row)}
        options |= {"checkpoint_every": CHECKPOINT_EVERY, "rounds": self.rounds, "data.root": self.data.root}
        options |= flatten(self.engine, "engine.")
        if self.data.dataset == "folder":
            options["data.dataset"] = "folder"
        return config_of({**options, **(changes or {}), "seed": seed})

    def describe_data(self) -> str:
        """The data in words, with what is special about this copy of them."""
        root = self.data.root.rstrip("/").rpartition("/")[2]
        copy = f", from {root}" if self.data.dataset == "folder" else ""
        jpeg = ", a JPEG copy" if re.search("jpe?g", root, re.IGNORECASE) else ""
        data = self.run_config(self.all_rows()[0], 0).data
        versions = {self.run_config(row, 0).data.versions for row in self.all_rows()}
        several = versions.pop() if len(versions) == 1 else ""
        return f"{self.data_title}{copy}{jpeg}, {data.clients} clients ({data.partition}){several}{data.tested}"


def rising(caps: Sequence[float]) -> bool:
    """Whether these can be caps on the upload: above 0, and each above the one before it."""
    return bool(caps) and all(low < cap < math.inf for low, cap in pairwise([0, *caps]))
