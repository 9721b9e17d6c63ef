"""A comparison: several methods on the same seeds, and the curves of their runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from feddst.core.keys import LARGEST_SEED
from feddst.core.metric import Metric
from feddst.errors import OptionError
from feddst.notebook import aligned, table_html
from feddst.options import Option, check_list, flatten, hint, option, options_of, updated
from feddst.runtime.config import RunConfig, config_of, method_named, refuse_ineffective
from feddst.runtime.metrics import ACCURACY, GIB, Accounting, Row, Scored, best_under
from feddst.runtime.old_names import METHODS, OPTIONS, Former
from feddst.runtime.session import refuse_mixed_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

S = TypeVar("S", bound=Scored)

_PER_RUN = ("method", "seed")
_SHARED = ("accounting", "data", "engine", "method", "seed")
"""What an entry may not change: with other data or another way to count it would not be compared on equal terms."""


@dataclass(frozen=True)
class Entry:
    """A method to compare, with options of its own where `feddst:readjust.alpha=0.01` gives them.

    `implied` are those that a name of an earlier version stands for: like a method's own defaults, they hold unless an
    option is given.
    """

    label: str
    method: str
    overrides: Mapping[str, Any]
    implied: Mapping[str, Any] = field(default_factory=dict)

    @property
    def directory(self) -> str:
        """The label as part of a file name."""
        return "".join(letter if letter.isalnum() or letter in "+-=._" else "-" for letter in self.label)

    def config(self, base: RunConfig, seed: int, given: frozenset[str] = frozenset()) -> RunConfig:
        """The run of this entry with one seed.

        An option at its method's default in `base`, and not `given`, has the default of this method.
        """
        usual, own = (
            flatten(config_of(values)) for values in ({"method": base.method}, {"method": self.method, **self.implied})
        )
        left = {name for name, value in flatten(base).items() if value == usual[name]} - given
        defaults = {name: own[name] for name in left if own[name] != usual[name]}
        return updated(base, {**defaults, **self.overrides, "method": self.method, "seed": seed})


@dataclass(frozen=True)
class CompareConfig:
    """Which methods are compared, on which seeds, at which upload caps; `base` is what their runs share.

    `given` are the options of `base` that were set: even at their usual values, they override a method's own defaults.
    """

    methods: tuple[str, ...] = option(
        ("fedavgm", "randommask", "feddst"),
        "what to compare; `feddst:readjust.alpha=0.01` is a method with an option of its own",
    )
    seeds: tuple[int, ...] = option(
        (0,), "one run of every method for each of these seeds", at_least=0, at_most=LARGEST_SEED
    )
    caps: tuple[float, ...] = option(
        (), "upload caps in GiB, as `accounting` counts, at which the table gives the best score", above=0
    )
    base: RunConfig = field(default_factory=RunConfig)
    given: frozenset[str] = frozenset()

    def entries(self) -> list[Entry]:
        """The entries that `methods` stands for, each checked."""
        return [parse_entry(text) for text in self.methods]

    def check(self) -> None:
        """Raise `OptionError` at the first value that is not allowed, in any of the runs."""
        values = {"methods": self.methods, "seeds": self.seeds, "caps": self.caps}
        for opt in _own_options():
            opt.check(values[opt.name])
        entries = self.entries()
        check_list("methods", [entry.directory for entry in entries])
        check_list("seeds", self.seeds)
        for entry in entries:
            config = entry.config(self.base, self.seeds[0], self.given)
            refuse_ineffective([config], entry.overrides)
            config.check()
        refuse_mixed_metrics({one.label: one.config(self.base, self.seeds[0], self.given) for one in entries})


@dataclass(frozen=True)
class Curve(Generic[S]):
    """The rows of one run of a comparison, with its way of counting; `cap_gib` is the cap that ended it, 0 if none."""

    label: str
    seed: int
    rows: tuple[S, ...]
    path: Path
    accounting: Accounting = "measured"
    cap_gib: float = 0.0

    @property
    def metric(self) -> Metric:
        """What its scores are values of."""
        return self.rows[0].metric if self.rows else ACCURACY

    @property
    def uploaded(self) -> int:
        """Bits uploaded in all, as `accounting` counts them."""
        return self.rows[-1].upload(self.accounting) if self.rows else 0

    def best(self, cap_gib: float) -> float | None:
        """The best mean score under an upload cap; None if nothing was evaluated under it."""
        return best_under(self.rows, cap_gib, self.accounting)

    def ended_before(self, cap_gib: float) -> bool:
        """Whether the run ended under this cap for another reason: more rounds would have been allowed."""
        return self.cap_gib < cap_gib and self.uploaded <= cap_gib * GIB


@dataclass(frozen=True, repr=False)
class Comparison:
    """The curves so far, in the order in which they were run; `finished` is False if some are missing.

    `data` is its data in words; `reproducible` is False if the user's own model or data went in, which the command
    line alone cannot repeat.
    """

    config: CompareConfig
    curves: tuple[Curve[Row], ...]
    path: Path
    finished: bool
    data: str = ""
    reproducible: bool = True

    def __repr__(self) -> str:
        from feddst.studies.tables import table

        return "\n".join([self._title, *(f"  {line}" for line in aligned(table(self)))])

    def _repr_html_(self) -> str:
        from feddst.studies.tables import notes, table

        return table_html(table(self), self._title, notes(self))

    def plot(self) -> "Axes":
        """A picture of accuracy against upload, with a line for each method."""
        from feddst.studies.plots import plot

        return plot(self)

    @property
    def _title(self) -> str:
        seeds = ", ".join(map(str, self.config.seeds))
        state = "finished" if self.finished else "stopped early"
        return f"Comparison on {self.data}, seeds {seeds}: {state}, in {self.path}"

    @property
    def metric(self) -> Metric:
        """By what the runs are judged: all by the same."""
        return next((curve.metric for curve in self.curves if curve.rows), ACCURACY)

    def of(self, label: str) -> list[Curve[Row]]:
        """The curves of one entry, one a seed."""
        return [curve for curve in self.curves if curve.label == label]


def compare_options() -> list[Option]:
    """Every option of a comparison: its own, and those of its runs apart from method and seed."""
    return _own_options() + [opt for opt in options_of(RunConfig) if opt.name not in _PER_RUN]


def compare_config(values: Mapping[str, Any]) -> CompareConfig:
    """A comparison from options by dotted name.

    With caps, a run ends at the largest of them, unless `cap_gib` or `rounds` say otherwise.
    """
    known = {opt.name: opt for opt in compare_options()}
    for name in values:
        if name not in known:
            raise OptionError(f"unknown option {name!r}{hint(name, known)}")
    own_names = {opt.name for opt in _own_options()}
    own = {name: known[name].check(value) for name, value in values.items() if name in own_names}
    shared = {name: value for name, value in values.items() if name not in own_names}
    if own.get("caps"):
        shared = {"cap_gib": max(own["caps"]), "rounds": 0} | shared
    return CompareConfig(**own, base=updated(RunConfig(), shared), given=frozenset(shared))


def parse_entry(text: str) -> Entry:
    """An entry as a user writes it: a method's name, then `:option=value` for each option of its own."""
    name, *assignments = text.split(":")
    former = METHODS.get(name, Former(name))
    method_named(former.method)
    known = {opt.name: opt for opt in options_of(RunConfig)}
    overrides: dict[str, Any] = {}
    for assignment in assignments:
        given, equals, value = assignment.partition("=")
        key = given.strip().replace("-", "_")
        key = OPTIONS.get(key, key)
        if not equals:
            raise OptionError(f"methods: {text!r} needs option=value after each colon, got {assignment!r}")
        if key not in known:
            raise OptionError(f"methods: unknown option {given!r} in {text!r}{hint(key, known)}")
        if key.partition(".")[0] in _SHARED:
            raise OptionError(f"methods: {key} in {text!r} must be the same for all that is compared")
        overrides[key] = known[key].parse(value)
    return Entry(text, former.method, overrides, former.options)


def _own_options() -> list[Option]:
    return [opt for opt in options_of(CompareConfig) if not opt.name.startswith("base.")]
