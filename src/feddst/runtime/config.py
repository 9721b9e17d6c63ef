"""A run's config: groups of options declared where they are used, put together here."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from feddst import aggregators  # noqa: F401  makes them known
from feddst.clients.optimizers import MissingOptimizer
from feddst.clients.steps import Growth, Proximal
from feddst.core import OBJECTIVES, OPTIMIZERS, SCHEDULES, AggregatorConfig, LocalTraining
from feddst.core.keys import LARGEST_SEED
from feddst.data import DataConfig
from feddst.engines import EngineConfig
from feddst.errors import OptionError
from feddst.methods import (
    METHODS,
    Adaptive,
    Lottery,
    MaskMerge,
    Method,
    OneShot,
    OwnGroups,
    Reconfiguration,
    ServerOptimizer,
    SharedLayers,
    Sprouting,
    Tiers,
    Votes,
    own_defaults,
    why_idle,
)
from feddst.models import ModelConfig
from feddst.objectives import MissingObjective
from feddst.options import flatten, hint, one_of, option, updated, validate
from feddst.runtime.metrics import Accounting
from feddst.runtime.old_names import named_now, renewed
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import WireConfig, broadcast_codecs, general_codecs

CHANGEABLE = frozenset({"rounds", "cap_gib", "min_clients", "engine.workers"})
"""What may differ when a run is resumed: how far it goes, what stops it, and how many clients train at once."""


@dataclass(frozen=True)
class CohortConfig:
    """Who takes part in a round."""

    size: int = option(20, "clients in a round", at_least=1)
    sampling: Literal["without-replacement", "with-replacement"] = option(
        "without-replacement", "how a round's clients are drawn; with replacement is the published code's way"
    )
    stragglers: float = option(
        0.0, "share of a round's clients that manage only some of their epochs", at_least=0, at_most=1
    )


@dataclass(frozen=True)
class RunConfig:
    """One run of one method. Made by hand it has the shared defaults; `configure` gives it those of its method too."""

    method: str = option("feddst", "the method: `feddst methods` lists them")
    seed: int = option(0, "every random draw of the run follows from this", at_least=0, at_most=LARGEST_SEED)
    rounds: int = option(200, "stop after this many rounds; 0: only at the upload cap", at_least=0)
    cap_gib: float = option(
        0.0, "stop before the upload, as `accounting` counts it, passes this many GiB; 0: no cap", at_least=0
    )
    accounting: Accounting = option(
        "measured",
        "what caps, tables and plots count as upload: bytes sent, the paper's formula, or the published code's sum",
    )
    min_clients: int = option(
        1,
        "a round with fewer updates changes nothing; if clients failed in it, it does not count, and three such rounds "
        "in a row end the run as failed",
        at_least=1,
    )
    ema: float = option(
        0.0,
        "what is tested and exported is a moving average of the model, of which this share stays each round; training "
        "goes on from the last model, and clients' own models are not averaged; 0: the last model itself",
        at_least=0,
        below=1,
    )
    metric: str = option("", "what tables, plots and early stopping go by; empty: the first metric of local.objective")
    eval_every: int = option(5, "evaluate every this many rounds, and after the last", at_least=1)
    personal_images: int = option(
        200, "test at most this many images on each client's own model, if the method makes such", at_least=1
    )
    checkpoint_every: int = option(10, "write a checkpoint every this many rounds, and after the last", at_least=1)
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    cohort: CohortConfig = CohortConfig()
    local: LocalTraining = LocalTraining()
    sparsity: Sparsity = Sparsity()
    readjust: Timetable = Timetable()
    growth: Growth = Growth()
    merge: MaskMerge = MaskMerge()
    sprout: Sprouting = Sprouting()
    proximal: Proximal = Proximal()
    server: ServerOptimizer = ServerOptimizer()
    adaptive: Adaptive = Adaptive()
    oneshot: OneShot = OneShot()
    prunefl: Reconfiguration = Reconfiguration()
    lottery: Lottery = Lottery()
    lg: SharedLayers = SharedLayers()
    sign: Votes = Votes()
    tiers: Tiers = Tiers()
    own: OwnGroups = OwnGroups()
    aggregator: AggregatorConfig = AggregatorConfig()
    wire: WireConfig = WireConfig()
    engine: EngineConfig = EngineConfig()

    def group(self, name: str) -> Any:
        """The group of options of this name, of this package or of a registered method."""
        return self.own[name] if name in self.own.kinds else getattr(self, name)

    def check(self) -> None:
        """Raise `OptionError` at the first value that is not allowed."""
        validate(self)
        for chosen in (OBJECTIVES[self.local.objective], OPTIMIZERS[self.local.optimizer]):
            if isinstance(chosen, MissingObjective | MissingOptimizer):
                raise OptionError(chosen.remedy)
        self.data.check()
        method = make_method(self)
        method.check()
        if not self.rounds and not self.cap_gib:
            raise OptionError("rounds is 0 and so is cap_gib: the run would never stop; set one of them")
        if SCHEDULES[self.local.schedule].needs_rounds and not self.rounds:
            raise OptionError(
                f"local.schedule {self.local.schedule} needs to know how many rounds there are: set rounds"
            )
        if self.rounds and self.local.warmup >= self.rounds:
            raise OptionError(f"local.warmup must be below rounds ({self.rounds}), got {self.local.warmup}")
        if self.cohort.sampling == "without-replacement" and self.cohort.size > self.data.clients:
            raise OptionError(f"cohort.size must be at most data.clients ({self.data.clients}), got {self.cohort.size}")
        if self.min_clients > self.cohort.size:
            raise OptionError(f"min_clients must be at most cohort.size ({self.cohort.size}), got {self.min_clients}")
        if self.wire.feedback and self.cohort.sampling == "with-replacement":
            raise OptionError(
                "with wire.feedback, cohort.sampling must be without-replacement, got 'with-replacement': "
                "a client drawn twice in a round would send twice what it has kept"
            )
        self.wire.check()
        self._refuse_codecs(method)
        self.engine.torch_device()

    def _refuse_codecs(self, method: Method) -> None:
        """Raise if a codec that the method does not fix itself would spoil values.

        The sign codec spoils all. A top-k codec spoils all but changes: models, and gradients, which travel in the
        codec of updates. In float16 squared gradients would be 0.
        """
        updates = broadcast_codecs() if method.reads_gradients else general_codecs()
        if method.reads_squares:
            updates = {name: codec for name, codec in updates.items() if name != "float16"}
        for name, codec, allowed in (
            ("wire.values", self.wire.values, updates),
            ("wire.download", self.wire.download, broadcast_codecs()),
        ):
            if codec not in allowed and method.pins.get(name) != codec:
                raise OptionError(f"{name} must be {one_of(allowed)} for {self.method}, got {codec!r}")


OwnGroups.reserved |= {"flower", *(field.name for field in dataclasses.fields(RunConfig))}


def config_of(values: Mapping[str, Any]) -> RunConfig:
    """The config of a run with these options by dotted name; the others have their method's own defaults."""
    values = named_now(values)
    method = values.get("method", RunConfig.method)
    return updated(RunConfig(), {**usual_for(method), **values})


def usual_for(method: Any) -> Mapping[str, Any]:
    """The defaults that the method of this name, if there is one, has of its own, by dotted name."""
    return own_defaults(METHODS[method]) if isinstance(method, str) and method in METHODS else {}


def with_pins(config: RunConfig) -> RunConfig:
    """The config with the options that its method fixes by definition."""
    return updated(config, method_named(config.method).pins)


def make_method(config: RunConfig) -> Method:
    """The method that a config names, with its groups of options and what it pins."""
    kind = method_named(config.method)
    config = with_pins(config)
    return kind(**{field.name: config.group(field.name) for field in dataclasses.fields(kind)})


def method_named(name: str) -> type[Method]:
    """The method of this name, or an error with the nearest one."""
    if name not in METHODS:
        raise OptionError(f"method must be {one_of(METHODS)}, got {name!r}{hint(name, METHODS)}")
    return METHODS[name]


def refuse_ineffective(configs: Iterable[RunConfig], given: Mapping[str, Any]) -> None:
    """Raise if an option that the user gave does nothing in any of these runs, or contradicts the methods of all."""
    kinds, idle = [], []
    for config in configs:
        kinds.append(method_named(config.method))
        idle.append(why_idle(kinds[-1], flatten(config)))
    names = ", ".join(kind.name for kind in kinds)
    for name, value in given.items():
        if any(name in kind.pins and kind.pins[name] == value for kind in kinds):
            continue
        reasons = [why(name) for why in idle]
        if None not in reasons:
            why = next((f" with {reason}" for reason in reasons if reason), "")
            raise OptionError(f"{name} has no effect on {names}{why}")
        if all(name in kind.pins for kind in kinds):
            raise OptionError(f"{name} is fixed at {kinds[0].pins[name]} by {names}, got {value}")


def reaches(stored: RunConfig, wanted: RunConfig) -> bool:
    """Whether a run that ended as `stored` says has gone as far as `wanted` asks; 0 means no limit."""
    limits = ((stored.rounds, wanted.rounds), (stored.cap_gib, wanted.cap_gib))
    return all(old == new or old == 0 or (new != 0 and old >= new) for old, new in limits)


def options_to_store(config: RunConfig) -> dict[str, Any]:
    """Every option of a config by dotted name, for a file or a digest that outlives what is installed today.

    Another package's group is left out if the method does not have it and it is at its defaults.
    """
    used = {field.name for field in dataclasses.fields(method_named(config.method))}
    idle = set(config.own.kinds) - used - set(dict(config.own.changed))
    return {name: value for name, value in flatten(config).items() if name.partition(".")[0] not in idle}


def stored_options(values: Mapping[str, Any], where: str = "") -> RunConfig:
    """The config that a file holds by dotted name, of this version or an earlier one; `where` is as for `renewed`."""
    # Versions that did not write engine.kind had the reference engine alone: a run goes on with the bits it began with.
    stored = {"engine.kind": "reference", **named_now(renewed(values, where))}
    try:
        if isinstance(method := stored.get("method"), str):
            method_named(method)  # first of all: without the method, its options are not known either
        if isinstance(goal := stored.get("local.objective"), str):
            OBJECTIVES.setdefault(goal, MissingObjective(goal))  # a report needs no more than its name
        if isinstance(stepper := stored.get("local.optimizer"), str):
            OPTIMIZERS.setdefault(stepper, MissingOptimizer(stepper))  # likewise
        return updated(RunConfig(), stored)
    except OptionError as error:
        raise OptionError(f"{error}; a plugin that was there when it was written may be missing") from None


def differences(stored: RunConfig, wanted: RunConfig) -> list[str]:
    """Options that differ between two configs beyond what a resumed run may change."""
    old, new = flatten(with_pins(stored)), flatten(with_pins(wanted))
    return [
        f"{name} was {old[name]!r}, now {new[name]!r}"
        for name in old
        if name not in CHANGEABLE and old[name] != new[name]
    ]
