"""From a config to a finished run: what the command line and the Python API both call."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from feddst.clients.optimizers import optimizer_named
from feddst.core import OBJECTIVES, ClientOptimizer, Masks, Metric, Objective, objective_of
from feddst.core.plan import USUAL
from feddst.data import Dataset, Federation, RemoteFederation, clients_of
from feddst.data.adapters import Source
from feddst.engines import Engine, make_engine
from feddst.errors import CheckpointError, DataError, OptionError
from feddst.models import ModuleSource, make_module, outputs_for
from feddst.models import load as load_weights
from feddst.notebook import in_lines
from feddst.objectives import WithMetrics, objective_from
from feddst.options import updated
from feddst.runtime.bars import usual_display
from feddst.runtime.config import RunConfig
from feddst.runtime.ema import result_of
from feddst.runtime.lock import locked
from feddst.runtime.loop import Watcher, play
from feddst.runtime.metrics import Row, Summary
from feddst.runtime.networks import built_in
from feddst.runtime.run import Run
from feddst.runtime.several import Several, check_callbacks
from feddst.runtime.shown import Against, as_html, facts_of, frame_of, plot_of
from feddst.runtime.storage import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Loss: TypeAlias = Callable[[Any, Any], Tensor] | Objective
Metrics: TypeAlias = Mapping[str, Callable[[Any, Any], Any] | Metric] | Sequence[Metric]


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run. `finished` is False if it was stopped early; then it can be resumed."""

    config: RunConfig
    rows: list[Row]
    summary: Summary
    model: nn.Module
    masks: Masks
    path: Path | None
    finished: bool

    def __repr__(self) -> str:
        return in_lines(*facts_of(self))

    def _repr_html_(self) -> str:
        return as_html(self)

    def to_pandas(self) -> "DataFrame":
        """The rows as a table with the columns of `metrics.jsonl`, by round."""
        return frame_of(self.rows)

    def plot(self, *, against: Against = "upload", axes: "Axes | None" = None) -> "Axes":
        """A picture of the score against MiB uploaded or `"round"`, on axes of its own if none are given."""
        return plot_of(self, against, axes)


def run(
    config: RunConfig | None = None,
    *,
    model: ModuleSource | None = None,
    data: Dataset | Federation | tuple[Source, Source] | None = None,
    loss: Loss | None = None,
    metrics: Metrics = (),
    optimizer: Callable[..., Optimizer] | ClientOptimizer | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    callbacks: Sequence[Watcher] = (),
) -> Result:
    """Run one method and return the trained model with its metrics.

    `model` is a module, or a function that makes one (its weights then follow the seed), instead of the
    built-in network; `data` is a data set to split as `config.data` says, or a pair (train, test) of anything that
    `Dataset.of` takes, or a federation that is split already.

    `loss` is what clients minimise instead of `config.local.objective`: a function of outputs and targets that gives
    the mean loss of a minibatch, or each example's, or an `Objective`. `metrics` are more functions of both, by name,
    that give a number for all examples or one for each; the first one is what tables and plots show. `optimizer` is
    what clients step with instead of `local.optimizer`: a class of `torch.optim`, or a `functools.partial` that gives
    it constants. All three are registered under names that the config then has.

    With `out`, everything is written to that directory; `resume` goes on with the run in it. `callbacks` hear of every
    round, and may end the run. What is shown meanwhile is a line on standard error for each evaluation, in a notebook a
    bar; with a `watcher`, what that shows.
    """
    check_callbacks(callbacks)
    config, data = checked_types(config, data)
    config = with_objective(config, loss, metrics)
    if isinstance(data, Federation):
        config = updated(config, {"data.clients": data.num_clients})
    if optimizer is not None:
        config = updated(config, {"local.optimizer": optimizer_named(optimizer)})
    config.check()
    directory = run_directory(out, config, resume)
    ours = [usual_display(), *callbacks] if watcher is None else callbacks
    with locked(None if directory is None else directory.path), Several(*ours, guest=watcher) as called:
        federation = clients_of(config.data, config.seed, data)
        resolve_metrics(config, federation, model)
        one, module = open_run(config, federation, model, directory, resume)
        with closing(engine_of(config, module, federation.dataset)) as engine:
            finished = play([one], engine, called)
    found = result_of(one.state)
    load_weights(module, found.params, found.buffers)
    path = directory.path if directory is not None else None
    return Result(config, one.rows, one.summary(), module.eval(), one.state.masks, path, finished)


def engine_of(config: RunConfig, module: nn.Module, dataset: Dataset) -> Engine:
    """The engine that a config asks for, as far as it can carry out the run."""
    return make_engine(config.engine, module, dataset, config.local, aggregator=config.aggregator.kind)


def with_objective(config: RunConfig, loss: Loss | None, metrics: Metrics) -> RunConfig:
    """The config with the objective that `loss` and `metrics` say, registered under a name of its own."""
    if loss is None and not metrics:
        return config
    objective = objective_from(OBJECTIVES[config.local.objective], loss, metrics)
    if loss is not None:
        OBJECTIVES[objective.minimised] = objective.inner if isinstance(objective, WithMetrics) else objective
    OBJECTIVES[objective.name] = objective
    config = updated(config, {"local.objective": objective.name})
    read = {name for one in OBJECTIVES.values() for name in one.heeds}
    idle = [name for name in read.difference(objective.heeds) if getattr(config.local, name) != getattr(USUAL, name)]
    if idle:
        raise OptionError(f"local.{min(idle)} has no effect with a loss of your own, {objective.minimised}")
    return config


def metric_name(config: RunConfig) -> str:
    """The name of the metric that runs of this config are judged by."""
    if config.metric:
        return config.metric
    objective = objective_of(config.local)
    if isinstance(objective, WithMetrics):
        return next(iter(objective.given))
    return objective.metrics[0].name


def refuse_mixed_metrics(configs: Mapping[str, RunConfig]) -> None:
    """Raise `OptionError` unless all these runs are judged by the same metric."""
    names = {label: metric_name(config) for label, config in configs.items()}
    if len(set(names.values())) > 1:
        found = ", ".join(f"{label} has {name}" for label, name in names.items())
        raise OptionError(f"metric must be the same for all that is compared, so name one: {found}")


def resolve_metrics(config: RunConfig, federation: Federation, model: ModuleSource | None) -> None:
    """Find out what a user's metrics give: one number for all examples, or one for each."""
    objective = OBJECTIVES[config.local.objective]
    if not isinstance(objective, WithMetrics):
        return
    two = federation.dataset.test.read(np.arange(2) % len(federation.dataset.test))
    module = make_module(built_in(config, federation.dataset) if model is None else model, config.seed)
    OBJECTIVES[objective.name] = objective.resolved(outputs_for(module, two.inputs), two.targets)


def checked_types(config: RunConfig | None, data: Any) -> tuple[RunConfig, Dataset | Federation | None]:
    """The config and the data, with an error that names an argument of a wrong type."""
    if config is not None and not isinstance(config, RunConfig):
        raise OptionError(f"config must be a RunConfig, as feddst.configure makes, got {type(config).__name__}")
    return config or RunConfig(), checked_data(data)


def checked_data(data: Any) -> Dataset | Federation | None:
    """The data that a user gave: a pair becomes a data set."""
    if isinstance(data, tuple) and len(data) == 2:
        data = Dataset.of(*data)
    if data is not None and not isinstance(data, Dataset | Federation):
        raise DataError(
            f"data must be a feddst.Dataset, a feddst.Federation or a pair (train, test), got {type(data).__name__}"
        )
    return data


def run_directory(out: str | Path | None, config: RunConfig, resume: bool) -> RunDirectory | None:
    """The run's directory, refused before any work if it cannot be used."""
    if out is None:
        if resume:
            raise CheckpointError("resume needs `out`, the directory of the run to go on with")
        return None
    directory = RunDirectory(Path(out))
    if resume:
        directory.refuse_other(config)
    else:
        directory.refuse_occupied()
    return directory


def open_run(
    config: RunConfig,
    federation: Federation | RemoteFederation,
    model: ModuleSource | None,
    directory: RunDirectory | None,
    resume: bool,
    *,
    untrusted: bool = False,
    spare: int = 0,
) -> tuple[Run, nn.Module]:
    """A run that is ready for its next round, and its network; its directory is made or resumed.

    The caller holds the directory's lock.

    `untrusted` and `spare` are for clients on machines of their own, as `Run` says.
    """
    if model is None:
        assert isinstance(federation, Federation)  # a server without data has a model of its own
        model = built_in(config, federation.dataset)
    module = copy.deepcopy(make_module(model, config.seed)).cpu()
    one = Run(config, federation, module, directory, untrusted=untrusted, spare=spare)
    if directory is not None and resume:
        one.resume()
        if not one.stopped_by:
            directory.reopen(one.config)
        elif directory.finished() is None:
            directory.finish(one.summary())
    elif directory is not None:
        directory.create(one.config)
        one.save()
    return one, module
