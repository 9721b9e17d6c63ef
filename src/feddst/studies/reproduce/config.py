"""The request for a reproduction, and the runs that it needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from feddst.errors import OptionError
from feddst.options import hint, one_of, option
from feddst.runtime.presets import FIGURES, TABLES, Contrast, Row, Sweep, Table, row_options, table_rows
from feddst.studies.reproduce.request import Request, rising

TARGETS = (*(table.name for table in TABLES), *(figure.name for figure in FIGURES))

_FIGURES = ", ".join(figure.name for figure in FIGURES)

Reading = Literal["paper", "published"]


@dataclass(frozen=True)
class ReproduceConfig(Request):
    """Which of the paper's tables or figures, how often, and where it is computed."""

    reading: Reading = option("paper", "paper: as its text has it; published: as its published code has it")
    on: Literal["auto", "mnist", "cifar10", "cifar100"] = option(
        "auto", "the data set of a figure, one of those that the paper shows it on; auto: the first of them"
    )
    caps: tuple[float, ...] = option(
        (), "upload caps of a figure in GiB, by the paper's formula; empty: those of its data set's table", above=0
    )

    @property
    def command(self) -> str:
        return "reproduce"

    @property
    def name(self) -> str:
        """The target, the data set if it is not the usual one, and the reading."""
        on = "" if self.on == "auto" or self.figure is None or self.on == self.figure.shown_on[0] else f"-{self.on}"
        return f"{self.target}{on}-{self.reading}"

    @property
    def upload_caps(self) -> tuple[float, ...]:
        return self.caps or self.table.caps

    @property
    def dataset(self) -> str:
        return self.table.dataset

    @property
    def usual_row(self) -> str:
        """The row of a sweep that has the table's own value."""
        if self.sweep is None:
            return ""
        usual = row_options(self.table, Row("", "", "feddst"), False)
        value = usual.get(self.sweep.option, self.sweep.values[-1])  # E_p is the last epoch by default
        return next(row.name for row in self.all_rows() if row.own[self.sweep.option] == value)

    @property
    def varied(self) -> tuple[str, str]:
        return (self.sweep.option, self.sweep.symbol) if self.sweep else ("", "")

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        return self.figure.compared(self.table, self._published) if isinstance(self.figure, Contrast) else ()

    @property
    def figure(self) -> Sweep | Contrast | None:
        """The figure that the target is, if it is one."""
        return next((figure for figure in FIGURES if figure.name == self.target), None)

    @property
    def sweep(self) -> Sweep | None:
        """The sweep that the target is, if it is one."""
        return self.figure if isinstance(self.figure, Sweep) else None

    @property
    def table(self) -> Table:
        """The table asked for, or the one with whose settings a figure is made."""
        if self.figure is None:
            return next(table for table in TABLES if table.name == self.target)
        wanted = self.figure.shown_on[0] if self.on == "auto" else self.on
        return next(table for table in TABLES if table.dataset == wanted)

    def check(self) -> None:
        if self.target not in TARGETS:
            raise OptionError(f"target must be {one_of(TARGETS)}, got {self.target!r}{hint(self.target, TARGETS)}")
        self._check_on()
        self._check_caps()
        super().check()

    def all_rows(self) -> list[Row]:
        if isinstance(self.figure, Sweep):
            return self.figure.rows()
        if isinstance(self.figure, Contrast):
            return self.figure.rows(self.table, self._published)
        return table_rows(self.table, self._published)

    def options(self, row: Row) -> Mapping[str, Any]:
        return row_options(self.table, row, self._published) | {"cap_gib": max(self.upload_caps)}

    @property
    def _published(self) -> bool:
        return self.reading == "published"

    def _check_on(self) -> None:
        if self.on == "auto":
            return
        if self.figure is None:
            raise OptionError(f"on must be auto for {self.target}, got {self.on!r}: it is for {_FIGURES}")
        if self.on not in self.figure.shown_on:
            shown = one_of(self.figure.shown_on)
            raise OptionError(f"on must be {shown}, as the paper shows {self.target} there, got {self.on!r}")

    def _check_caps(self) -> None:
        if not self.caps:
            return
        if self.figure is None:
            raise OptionError(
                f"caps must be empty for {self.target}, as the paper's values there are at its own, got "
                f"{list(self.caps)}: they are for {_FIGURES}"
            )
        if not rising(self.caps):
            raise OptionError(f"caps must be GiB above 0, each above the one before it, got {list(self.caps)}")
