"""What a reproduction is asked for, and the runs that this means."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from feddst.engines import EngineConfig
from feddst.errors import OptionError
from feddst.experiment.config import RunConfig
from feddst.experiment.presets import SWEEPS, TABLES, Row, Sweep, Table, row_options, table_rows
from feddst.options import check_list, flatten, hint, one_of, option, updated, validate

TARGETS = (*(table.name for table in TABLES), *(sweep.name for sweep in SWEEPS))
CHECKPOINT_EVERY = 100

Reading = Literal["paper", "published"]


@dataclass(frozen=True)
class Source:
    """Where the images come from."""

    dataset: Literal["auto", "folder"] = option(
        "auto", "auto: the paper's data set as in `feddst run`; folder: your own copy of it, as images under data.root"
    )
    root: str = option(
        "", "where data is found or put, as in `feddst run`; for folder: the image directory or tar archive"
    )


@dataclass(frozen=True)
class ReproduceConfig:
    """Which of the paper's tables or sweeps, how often, and where it is computed."""

    target: str
    reading: Reading = option("paper", "paper: as its text has it; published: as its published code has it")
    seeds: int = option(10, "runs of every row: seeds 0, 1, …", at_least=1, at_most=1000)
    rows: tuple[str, ...] = option((), "only these rows, by name; empty: all of them")
    on: Literal["auto", "mnist", "cifar10", "cifar100"] = option(
        "auto", "the data set of a sweep, one of those that the paper shows it on; auto: the first of them"
    )
    rounds: int = option(0, "stop every run after this many rounds; 0: at the last upload cap", at_least=0)
    minutes: float = option(
        0.0, "stop after so many minutes, with exit code 3; the same command goes on; 0: no limit", at_least=0
    )
    at_once: int = option(1, "rows played at the same time, each with an engine of its own", at_least=1)
    data: Source = Source()
    engine: EngineConfig = EngineConfig()

    def check(self) -> None:
        """Raise `OptionError` at the first value that is not allowed."""
        if self.target not in TARGETS:
            raise OptionError(f"target must be {one_of(TARGETS)}, got {self.target!r}{hint(self.target, TARGETS)}")
        validate(self)
        self._check_on()
        if self.data.dataset == "folder" and not self.data.root:
            raise OptionError("data.root must name an image directory or tar archive when data.dataset is folder")
        if self.rows:
            names = [row.name for row in self.all_rows()]
            check_list("rows", self.rows)
            for name in self.rows:
                if name not in names:
                    raise OptionError(f"rows must be among {', '.join(names)}, got {name!r}{hint(name, names)}")
        for row in self.all_rows():
            self.run_config(row, 0).check()

    @property
    def sweep(self) -> Sweep | None:
        """The sweep that the target is, if it is one."""
        return next((sweep for sweep in SWEEPS if sweep.name == self.target), None)

    @property
    def table(self) -> Table:
        """The table asked for, or the one whose settings a sweep varies."""
        if self.sweep is None:
            return next(table for table in TABLES if table.name == self.target)
        wanted = self.sweep.shown_on[0] if self.on == "auto" else self.on
        return next(table for table in TABLES if table.data["data.dataset"] == wanted)

    @property
    def name(self) -> str:
        """The target, the data set if it is not the usual one, and the reading: a name for directories."""
        on = "" if self.on == "auto" or self.sweep is None or self.on == self.sweep.shown_on[0] else f"-{self.on}"
        return f"{self.target}{on}-{self.reading}"

    def all_rows(self) -> list[Row]:
        """Every row of the target."""
        return self.sweep.rows() if self.sweep else table_rows(self.table, self.reading == "published")

    def wanted_rows(self) -> list[Row]:
        """The rows asked for."""
        return [row for row in self.all_rows() if not self.rows or row.name in self.rows]

    def usual_row(self) -> str:
        """The row of a sweep that has the table's own value."""
        assert self.sweep is not None
        usual = row_options(self.table, Row("", "", "feddst"), False)
        value = usual.get(self.sweep.option, self.sweep.values[-1])  # E_p is the last epoch where nothing is said
        return next(row.name for row in self.all_rows() if row.own[self.sweep.option] == value)

    def run_config(self, row: Row, seed: int, changes: Mapping[str, Any] | None = None) -> RunConfig:
        """One run of a row; `changes` are options that differ from the paper's, for tries on small data."""
        options = row_options(self.table, row, self.reading == "published")
        options |= {"checkpoint_every": CHECKPOINT_EVERY, "rounds": self.rounds, "data.root": self.data.root}
        options |= flatten(self.engine, "engine.")
        if self.data.dataset == "folder":
            options["data.dataset"] = "folder"
        return updated(RunConfig(), {**options, **(changes or {}), "seed": seed})

    def describe_data(self) -> str:
        """The data in words, with what is special about this copy of them."""
        root = self.data.root.rstrip("/").rpartition("/")[2]
        copy = f", from {root}" if self.data.dataset == "folder" else ""
        jpeg = ", a JPEG copy" if re.search("jpe?g", root, re.IGNORECASE) else ""
        split = dict(row_options(self.table, self.all_rows()[0], self.reading == "published"))
        return f"{self.table.title}{copy}{jpeg}, {split['data.clients']} clients ({split['data.partition']})"

    def _check_on(self) -> None:
        if self.on == "auto":
            return
        if self.sweep is None:
            sweeps = ", ".join(sweep.name for sweep in SWEEPS)
            raise OptionError(f"on must be auto for {self.target}, got {self.on!r}: it is for {sweeps}")
        if self.on not in self.sweep.shown_on:
            shown = one_of(self.sweep.shown_on)
            raise OptionError(f"on must be {shown}, as the paper shows {self.target} there, got {self.on!r}")
