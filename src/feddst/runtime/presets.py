"""Settings by name: the rows of the paper's Tables 1 to 3, twice, its sweeps, quick looks, few bytes, other tasks.

`table1-feddst` is as the paper's text has it, `table1-feddst-published` as its published code has it: the code's
departures are values of ordinary options. `table1` and `table1-published` compare all rows of a table;
`table1-alpha`, `-sparsity` and `-schedule` vary one option of FedDST, `table1-compatibility` has FedDST and what it is
built on, with FedProx and without. `thrifty` and `thrifty-cifar10` end at 0.25 % of the paper's upload. `shakespeare`,
`har` and `fashion-mnist` compare methods on tasks beyond the paper's; `shakespeare-feddst`, `har-feddst` and
`fashion-mnist-feddst` run one.

`paper/` has what they are made of: each table as a study like any other, how the published code departs from them, and
the figures.
"""

import dataclasses
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from feddst.errors import OptionError
from feddst.methods import METHODS, own_defaults, why_idle
from feddst.options import dotted, hint

Command = Literal["run", "compare"]


@dataclass(frozen=True)
class Preset:
    """Option values for one of the commands, under a name."""

    name: str
    summary: str
    command: Command
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A row of a table: its name here and in the paper, the method, and what the row has of its own."""

    name: str
    title: str
    method: str
    own: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def entry(self) -> str:
        """The row as a comparison names it."""
        return ":".join([self.method, *(f"{name}={_word(value)}" for name, value in self.own.items())])

    @classmethod
    def read(cls, name: str, said: Mapping[str, Any], usual: str) -> "Row":
        """The row of this name as a study says it, by the `usual` method if it names none."""
        own = dotted(said.get("options", {}))
        method = str(own.pop("method", usual))
        return cls(name, said.get("title", name), method, own)


@dataclass(frozen=True)
class Table:
    """One of the paper's tables: what its rows share, and the rows as the paper's text has them."""

    name: str
    title: str
    caps: tuple[float, ...]
    options: Mapping[str, Any]
    rows: tuple[Row, ...]

    @property
    def dataset(self) -> str:
        """The data set that it is about."""
        return str(self.options["data.dataset"])


def _said(name: str) -> dict[str, Any]:
    """What a file in `paper/` says."""
    return tomllib.loads((Path(__file__).parent / "paper" / f"{name}.toml").read_text(encoding="utf-8"))


def _rows(said: Mapping[str, Any]) -> tuple[Row, ...]:
    return tuple(Row.read(name, row, "") for name, row in said["rows"].items())


def _table(name: str) -> Table:
    said = _said(name)
    return Table(name, said["title"], tuple(said["caps"]), dotted(said["options"]), _rows(said))


TABLES = tuple(_table(name) for name in ("table1", "table2", "table3"))

_PUBLISHED = dotted(_said("published")["options"])
"""What the published code does differently."""

_PUBLISHED_ROWS = _rows(_said("published"))
"""Rows that are others in the published code, or are there only."""

STILL = "-still"
"""Ends the name of a row of the published reading that leaves readjustment out."""


@dataclass(frozen=True)
class Sweep:
    """An option of FedDST that the paper varies, and the values it is given here."""

    name: str
    title: str
    option: str
    symbol: str
    values: tuple[float, ...]
    shown_on: tuple[str, ...]

    def rows(self) -> list["Row"]:
        """FedDST with each of the values."""
        return [
            Row(f"{self.name}={value:g}", f"{self.symbol} = {value:g}", "feddst", {self.option: value})
            for value in self.values
        ]


@dataclass(frozen=True)
class Contrast:
    """Rows of a table, and one more, as one of the paper's figures compares them.

    `pairs` are the rows, by name, whose differences the figure's claim is about; pairs that a reading lacks are left
    out.
    """

    name: str
    title: str
    of_table: tuple[str, ...]
    more: tuple[Row, ...]
    pairs: tuple[tuple[str, str], ...]
    shown_on: tuple[str, ...]

    def rows(self, table: Table, published: bool) -> list[Row]:
        """The rows, those of the table first."""
        return [row for row in table_rows(table, published) if row.name in self.of_table] + list(self.more)

    def compared(self, table: Table, published: bool) -> tuple[tuple[str, str], ...]:
        """The pairs of rows that are there."""
        names = {row.name for row in self.rows(table, published)}
        return tuple(pair for pair in self.pairs if names.issuperset(pair))


def _sweep(name: str, said: Mapping[str, Any]) -> Sweep:
    values, shown_on = tuple(said["values"]), tuple(said["shown_on"])
    return Sweep(name, said["title"], said["option"], said["symbol"], values, shown_on)


def _contrast(name: str, said: Mapping[str, Any]) -> Contrast:
    pairs = tuple((first, second) for first, second in said["pairs"])
    return Contrast(name, said["title"], tuple(said["of_table"]), _rows(said), pairs, tuple(said["shown_on"]))


_FIGURES = _said("figures")

SWEEPS = tuple(_sweep(name, said) for name, said in _FIGURES["sweeps"].items())

COMPATIBILITY = _contrast("compatibility", _FIGURES["compatibility"])
"""The figure by which the paper shows that FedDST is compatible with FedProx."""

CROSSED = (
    "randommask:proximal.mu=1",
    "randommask:server.optimizer=adam",
    "feddst:proximal.mu=1",
    "feddst:server.optimizer=adagrad",
    "feddst:server.optimizer=adam",
    "feddst:server.optimizer=yogi",
    "sprout:server.optimizer=adam",
)
"""Sparse methods with FedProx's term or an adaptive server, as entries of a comparison."""

FIGURES: tuple[Sweep | Contrast, ...] = (*SWEEPS, COMPATIBILITY)


def find_preset(name: str) -> Preset:
    """The preset of this name, or an error with the nearest one."""
    if name not in PRESETS:
        raise OptionError(f"unknown preset {name!r}{hint(name, PRESETS) or '; `feddst presets` lists them'}")
    return PRESETS[name]


def preset_options(name: str, command: Command) -> Mapping[str, Any]:
    """The options of the preset of this name, which must be for this command."""
    found = find_preset(name)
    if found.command != command:
        raise OptionError(f"preset {name} is for `feddst {found.command}`, not for `feddst {command}`")
    return found.options


def table_rows(table: Table, published: bool) -> list[Row]:
    """The rows of a table, in the paper's order, each with what it has beyond the table's own options."""
    rows = {row.name: row for row in (*table.rows, *(_PUBLISHED_ROWS if published else ()))}
    return [dataclasses.replace(row, own=_beyond(table.options, row.own)) for row in rows.values()]


def _beyond(usual: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Its own options but for those that are as usual."""
    return {name: value for name, value in own.items() if name not in usual or value != usual[name]}


def _shared(table: Table, published: bool) -> dict[str, Any]:
    """What all rows of a table have in common."""
    options = {**table.options, "rounds": 0}
    if published:
        options |= _PUBLISHED
        if options["data.partition"] == "classes":
            options["data.partition"] = "shards"
    return options


def _effective(rows: Iterable[Row], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that do something for any of these rows."""
    kinds = [(METHODS[row.method], row.own) for row in rows]
    idle = [why_idle(kind, {**own_defaults(kind), **options, **own}) for kind, own in kinds]
    return {name: value for name, value in options.items() if any(why(name) is None for why in idle)}


def row_options(table: Table, row: Row, published: bool) -> dict[str, Any]:
    """The options of a row's runs: up to the largest cap of its table."""
    options = {"method": row.method, **_shared(table, published), **row.own, "cap_gib": max(table.caps)}
    return _effective([row], options)


def _run_preset(table: Table, row: Row, published: bool) -> Preset:
    summary = f"{table.title}, {row.title}: {_source(published)}"
    if published and "sparsity.level" in row.own:
        summary += ", which readjusts here too (α = 0.5 at sparsity 0)"
    options = row_options(table, row, published)
    return Preset(f"{table.name}-{row.name}{_suffix(published)}", summary, "run", options)


def _compare_preset(table: Table, published: bool) -> Preset:
    methods = tuple(row.entry for row in table_rows(table, published))
    shared = _effective(table_rows(table, published), _shared(table, published))
    options = {"methods": methods, "caps": table.caps, **shared}
    return Preset(table.name + _suffix(published), f"{table.title}, all rows: {_source(published)}", "compare", options)


def _sweep_presets(table: Table, published: bool) -> Iterator[Preset]:
    """FedDST with one of its options varied, as in the paper's figures."""
    for sweep in SWEEPS:
        methods = tuple(row.entry for row in sweep.rows())
        options = {"methods": methods, "caps": table.caps, **_effective(sweep.rows(), _shared(table, published))}
        summary = f"{table.title}, FedDST with {sweep.title}: {_source(published)}"
        yield Preset(f"{table.name}-{sweep.name}{_suffix(published)}", summary, "compare", options)


def _contrast_preset(table: Table, published: bool) -> Preset:
    """FedDST and what it is built on, with FedProx and without."""
    rows = COMPATIBILITY.rows(table, published)
    shared = _effective(rows, _shared(table, published))
    options = {"methods": tuple(row.entry for row in rows), "caps": table.caps, **shared}
    summary = f"{table.title}, FedDST and FedAvgM {COMPATIBILITY.title}: {_source(published)}"
    return Preset(f"{table.name}-{COMPATIBILITY.name}{_suffix(published)}", summary, "compare", options)


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _source(published: bool) -> str:
    return "the published code" if published else "the paper's text"


def _suffix(published: bool) -> str:
    return "-published" if published else ""


def _all() -> Iterator[Preset]:
    yield Preset(
        "quick",
        "MNIST in a minute: FedAvgM, RandomMask and FedDST under one small upload cap",
        "compare",
        {
            "methods": ("fedavgm", "randommask", "feddst"),
            "caps": (0.06, 0.12),  # 3 and 6 dense rounds, 15 and 30 sparse ones: all of them evaluated
            "data.dataset": "mnist",
            "data.partition": "shards",
            "eval_every": 3,
        },
    )
    yield Preset(
        "methods",
        "MNIST: every method under one small upload cap, thirty rounds at most",
        "compare",
        {
            "methods": (*METHODS, *CROSSED, "fedavgm:wire.values=bfloat16"),
            "caps": (0.12,),
            "rounds": 30,
            "data.dataset": "mnist",
            "data.partition": "shards",
            "prunefl.every": 10,
            "prunefl.layer_times": "flops",
            "prunefl.initial_rounds": 0,
            "eval_every": 3,
        },
    )
    yield from _thrifty()
    yield from _owners()
    yield from _clothing()
    for table in TABLES:
        for published in (False, True):
            for row in table_rows(table, published):
                yield _run_preset(table, row, published)
            yield _compare_preset(table, published)
            yield from _sweep_presets(table, published)
            yield _contrast_preset(table, published)


def _data(table: Table) -> dict[str, Any]:
    """The options that say what a table's clients hold."""
    return {name: value for name, value in table.options.items() if name.startswith("data.")}


def _thrifty() -> Iterator[Preset]:
    """Few bytes: 0.25 % of the paper's largest caps, with a network that grows from S = 0.98."""
    mnist, cifar10 = (_data(table) for table in TABLES[:2])
    few = {
        "cohort.size": 10,
        "wire.values": "top16",
        "wire.feedback": True,
        "ema": 0.99,
        "sparsity.level": 0.95,
        "rounds": 0,
    }
    yield Preset(
        "thrifty",
        "MNIST with less than a hundredth of the paper's upload",
        "run",
        {
            "method": "sprout",
            **mnist,
            "local.lr": 0.02,
            **few,
            "sparsity.distribution": "root",
            "sprout.spread": "same",
            "sprout.begin": 100,
            "sprout.end": 500,
            "cap_gib": 0.01,
        },
    )
    yield Preset(
        "thrifty-cifar10",
        "CIFAR-10 with less than a hundredth of the paper's upload",
        "run",
        {
            "method": "sprout",
            "server.optimizer": "adam",
            **cifar10,
            "data.augmentation": 5,
            "local.epochs": 3,  # over five versions of each image: as many steps as usual
            **few,
            "sprout.begin": 2000,
            "sprout.end": 6000,
            "adaptive.entering": "layer",
            "cap_gib": 0.04,
        },
    )


_SPARSE = ("randommask", "feddst", "sprout")
"""The methods that are compared with FedAvgM on tasks beyond the paper's."""


def _owners() -> Iterator[Preset]:
    """Data that belong to people or roles, and other networks than for images."""
    readjusted = {"readjust.every": 10, "readjust.until": 100}
    shared = {"data.partition": "owner", "cohort.size": 10, "rounds": 0}
    shakespeare = {
        **shared,
        "data.dataset": "shakespeare",
        "data.clients": 100,
        "local.objective": "tokens",
        "local.epochs": 1,
        "local.batch": 4,
        "local.lr": 0.3,
    }
    har = {
        **shared,
        "data.dataset": "har",
        "data.clients": 30,
        "cohort.size": 5,
        "local.epochs": 1,
        "local.lr": 0.1,
    }
    grown = {"sprout.start": 0.9, "sprout.begin": 20, "sprout.end": 100}
    # 33 and 20 dense rounds, and about five times as many sparse ones.
    yield from _task(
        "shakespeare", "Shakespeare by role, the next character, an LSTM", shakespeare | readjusted, (0.5, 1.0)
    )
    yield from _task(
        "har",
        "activities of 30 people from their phones, a 1-d CNN",
        har | readjusted,
        (0.0125, 0.025, 0.05),
        0.03,
        grown,
    )


def _clothing() -> Iterator[Preset]:
    """Fashion-MNIST, of which a client has two classes."""
    options = {
        "data.dataset": "fashion-mnist",
        "cohort.size": 10,
        "local.lr": 0.02,
        "rounds": 0,
        "readjust.every": 10,
        "readjust.until": 100,
    }
    grown = {"sprout.start": 0.9, "sprout.begin": 20, "sprout.end": 150}
    yield from _task("fashion-mnist", "Fashion-MNIST, two classes a client", options, (0.05, 0.1, 0.3), 0.005, grown)


def _task(
    name: str,
    task: str,
    options: Mapping[str, Any],
    caps: tuple[float, ...],
    dense_lr: float | None = None,
    grown: Mapping[str, Any] | None = None,
) -> Iterator[Preset]:
    """A comparison of four methods, and FedDST alone; a dense network may need a learning rate of its own."""
    dense = "fedavgm" if dense_lr is None else f"fedavgm:local.lr={dense_lr:g}"
    methods = {"methods": (dense, *_SPARSE), "caps": caps}
    yield Preset(name, f"{task}: four methods", "compare", {**methods, **options, **(grown or {})})
    yield Preset(f"{name}-feddst", f"{task}: FedDST", "run", {"method": "feddst", **options, "cap_gib": max(caps)})


PRESETS: dict[str, Preset] = {preset.name: preset for preset in _all()}
"""Every preset by name, in the order in which they are listed."""
