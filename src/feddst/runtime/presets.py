"""Settings by name: every row of the paper's Tables 1 to 3, twice, its sweeps, two quick looks, two of few bytes.

`table1-feddst` is as the paper's text has it, `table1-feddst-published` as its published code has it: the code's
departures are values of ordinary options. `table1` and `table1-published` compare all rows of a table;
`table1-alpha`, `-sparsity` and `-schedule` vary one option of FedDST, `table1-compatibility` has FedDST and what it is
built on, with FedProx and without. `thrifty` and `thrifty-cifar10` end at 0.25 % of the paper's upload.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from feddst.errors import OptionError
from feddst.methods import METHODS, own_defaults, why_idle
from feddst.options import hint

Command = Literal["run", "compare"]


@dataclass(frozen=True)
class Preset:
    """Option values for one of the commands, under a name."""

    name: str
    summary: str
    command: Command
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """One of the paper's tables: its data and what its rows share. `alpha_prox` is α with FedProx."""

    name: str
    title: str
    data: Mapping[str, Any]
    level: float
    alpha: float
    alpha_prox: float
    every: int
    until: int
    caps: tuple[float, ...]


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


_PATHOLOGICAL = {"data.partition": "classes", "data.clients": 400, "data.classes_per_client": 2}
_PATHOLOGICAL |= {"data.images_per_class": 20}
_DIRICHLET = {"data.partition": "dirichlet", "data.clients": 400, "data.beta": 0.1}

TABLES = (
    Table(
        "table1",
        "MNIST",
        {"data.dataset": "mnist", **_PATHOLOGICAL},
        level=0.8,
        alpha=0.05,
        alpha_prox=0.05,
        every=10,
        until=200,
        caps=(1.0, 2.0, 3.0, 4.0),
    ),
    Table(
        "table2",
        "CIFAR-10",
        {"data.dataset": "cifar10", **_PATHOLOGICAL},
        level=0.8,
        alpha=0.001,
        alpha_prox=0.01,
        every=15,
        until=1000,
        caps=(4.0, 8.0, 12.0, 16.0),
    ),
    Table(
        "table3",
        "CIFAR-100",
        {"data.dataset": "cifar100", **_DIRICHLET},
        level=0.5,
        alpha=0.01,
        alpha_prox=0.01,
        every=10,
        until=4000,
        caps=(8.0, 16.0, 24.0, 32.0),
    ),
)

_PUBLISHED = {
    "model.head": "softmax",
    "cohort.sampling": "with-replacement",
    "local.order": "fixed",
    "local.weigh_by": "batches",
    "accounting": "published",
    "sparsity.distribution": "erk-published",
    "readjust.decay": "constant",
    "readjust.counting": "published",
    "readjust.dropped": "resolved",
    "growth.grow_from": "any",
    "growth.images": "last-batch",
    "growth.weights": "unpruned",
    "proximal.gradient": "detached",
    "oneshot.client": "first",
    "oneshot.kept": "S",
    "oneshot.server_prunes": True,
    "oneshot.images": "minibatches",
    "prunefl.variant": "published",
}
"""What the published code does differently, one option each. Its partition is `shards` where ours is `classes`."""

_PROXIMAL = {"proximal.mu": 1.0}
"""What FedProx adds to another method."""

_READJUSTED = {"sparsity.level": 0.0, "readjust.alpha": 0.5, "readjust.every": 10}
"""The published code's documented commands for FedAvg and FedProx leave readjustment on, at its defaults."""

STILL = "-still"
"""Ends the name of a row of the published reading that leaves readjustment out."""


@dataclass(frozen=True)
class Sweep:
    """An option of FedDST that the paper varies, and the values it is given here.

    The paper gives no list of them: they span the range that its text speaks of. `shown_on` are the data sets of its
    figures. E_p is counted from 1 here: 10 of 10 epochs is the paper's E − 1 if epochs are counted from 0; read
    literally it is 9, which leaves an epoch to train grown weights.
    """

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


SWEEPS = (
    Sweep("alpha", "several α", "readjust.alpha", "α", (0.001, 0.005, 0.01, 0.05, 0.1), ("mnist", "cifar10")),
    Sweep(
        "sparsity",
        "several sparsities",
        "sparsity.level",
        "S",
        (0.5, 0.8, 0.9, 0.95),
        ("mnist", "cifar10", "cifar100"),
    ),
    Sweep(
        "schedule",
        "readjustment after several epochs E_p",
        "readjust.after_epoch",
        "E_p",
        (1, 3, 5, 8, 9, 10),
        ("mnist", "cifar10"),
    ),
)


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


COMPATIBILITY = Contrast(
    "compatibility",
    "with FedProx and without",
    ("fedavgm", "fedprox", "feddst", "feddst+fedprox", "fedavgm" + STILL),
    # Not in the paper: tells the effect of sparsity on FedDST + FedProx from that of readjustment.
    (Row("randommask+fedprox", "RandomMask + FedProx (μ = 1)", "randommask", _PROXIMAL),),
    (
        ("feddst+fedprox", "fedprox"),
        ("feddst+fedprox", "fedavgm" + STILL),
        ("feddst+fedprox", "randommask+fedprox"),
        ("feddst+fedprox", "feddst"),
        ("feddst", "fedavgm"),
        ("fedprox", "fedavgm"),
    ),
    ("mnist", "cifar10", "cifar100"),
)
"""The figure by which the paper shows that FedDST is compatible with FedProx.

The paper claims that "applying FedDST to FedProx consistently improves its performance". In the published code the
proximal term has no gradient, so FedAvgM without readjustment is also FedProx without it.
"""

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

FIGURES = (*SWEEPS, COMPATIBILITY)


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
    """The rows of a table, in the paper's order."""
    usual = {"sparsity.level": table.level, "readjust.alpha": table.alpha, "readjust.every": table.every}
    dense = {name: value for name, value in _READJUSTED.items() if value != usual[name]} if published else {}
    with_prox = _PROXIMAL | ({"readjust.alpha": table.alpha_prox} if table.alpha_prox != table.alpha else {})
    readjusted = Row("fedprox", "FedProx (μ = 1)", "feddst", {**dense, **_PROXIMAL})
    averaging = Row("fedavgm", "FedAvgM", "feddst" if published else "fedavgm", dense)
    # The documented command's readjustment hides how the code's other departures affect FedAvgM.
    still = [Row("fedavgm" + STILL, "FedAvgM, never readjusted", "fedavgm")] if published else []
    return [
        averaging,
        readjusted if published else Row("fedprox", "FedProx (μ = 1)", "fedprox"),
        Row("fedavgm-bfloat16", "FedAvgM bfloat16", averaging.method, {**dense, "wire.values": "bfloat16"}),
        Row("randommask", "RandomMask", "randommask"),
        Row("grasp", "GraSP", "grasp"),
        Row("prunefl", "PruneFL", "prunefl"),
        Row("feddst", "FedDST", "feddst"),
        Row("feddst+fedprox", "FedDST + FedProx (μ = 1)", "feddst", with_prox),
        *still,
    ]


def _shared(table: Table, published: bool) -> dict[str, Any]:
    """What all rows of a table have in common."""
    options = {
        **table.data,
        "sparsity.level": table.level,
        "readjust.alpha": table.alpha,
        "readjust.every": table.every,
        "readjust.until": table.until,
        "accounting": "paper",
        "eval_every": 5,
        "rounds": 0,
    }
    if published:
        options |= _PUBLISHED
        if table.data["data.partition"] == "classes":
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
    for table in TABLES:
        for published in (False, True):
            for row in table_rows(table, published):
                yield _run_preset(table, row, published)
            yield _compare_preset(table, published)
            yield from _sweep_presets(table, published)
            yield _contrast_preset(table, published)


def _thrifty() -> Iterator[Preset]:
    """Few bytes: 0.25 % of the paper's largest caps, with a network that grows from S = 0.98."""
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
            "data.dataset": "mnist",
            **_PATHOLOGICAL,
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
            "data.dataset": "cifar10",
            **_PATHOLOGICAL,
            "data.augmentation": 5,
            "local.epochs": 3,  # over five versions of each image: as many steps as usual
            **few,
            "sprout.begin": 2000,
            "sprout.end": 6000,
            "adaptive.entering": "layer",
            "cap_gib": 0.04,
        },
    )


PRESETS: dict[str, Preset] = {preset.name: preset for preset in _all()}
"""Every preset by name, in the order in which they are listed."""
