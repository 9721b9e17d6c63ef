"""From a config to a finished run: what the command line and the Python API both call."""

import copy
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from feddst.core import Masks
from feddst.data import Dataset, Federation, RemoteFederation, clients_of
from feddst.engines import Engine, make_engine
from feddst.errors import CheckpointError, DataError, OptionError
from feddst.models import ModuleSource, make_module, network
from feddst.models import load as load_weights
from feddst.notebook import in_lines
from feddst.options import updated
from feddst.runtime.bars import usual_display
from feddst.runtime.config import RunConfig
from feddst.runtime.ema import result_of
from feddst.runtime.lock import locked
from feddst.runtime.loop import Watcher, play
from feddst.runtime.metrics import Row, Summary
from feddst.runtime.run import Run
from feddst.runtime.several import Several, check_callbacks
from feddst.runtime.shown import Against, as_html, facts_of, frame_of, plot_of
from feddst.runtime.storage import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


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
    data: Dataset | Federation | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    callbacks: Sequence[Watcher] = (),
) -> Result:
    """Run one method and return the trained model with its metrics.

    `model` is a module, or a function that makes one (its weights then follow the seed), instead of the
    built-in network; `data` is a data set to split as `config.data` says, or a federation that is split
    already. With `out`, everything is written to that directory; `resume` goes on with the run in it. `callbacks` hear
    of every round, and may end the run. What is shown meanwhile is a line on standard error for each evaluation, in a
    notebook a bar; with a `watcher`, what that shows.
    """
    check_callbacks(callbacks)
    config = _checked_types(config, data)
    if isinstance(data, Federation):
        config = updated(config, {"data.clients": data.num_clients})
    config.check()
    directory = run_directory(out, config, resume)
    ours = [usual_display(), *callbacks] if watcher is None else callbacks
    with locked(None if directory is None else directory.path), Several(*ours, guest=watcher) as called:
        federation = clients_of(config.data, config.seed, data)
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


def _checked_types(config: RunConfig | None, data: Dataset | Federation | None) -> RunConfig:
    """The config, with an error that names an argument of a wrong type."""
    if config is not None and not isinstance(config, RunConfig):
        raise OptionError(f"config must be a RunConfig, as feddst.configure makes, got {type(config).__name__}")
    if data is not None and not isinstance(data, Dataset | Federation):
        raise DataError(f"data must be a feddst.Dataset or feddst.Federation, got {type(data).__name__}")
    return config or RunConfig()


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
    source = built_in(config, federation) if model is None else model
    module = copy.deepcopy(make_module(source, config.seed)).cpu()
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


def built_in(config: RunConfig, federation: Federation | RemoteFederation) -> ModuleSource:
    """The network that a config names, for data like these."""
    shape = tuple(federation.example.shape[1:])
    return lambda: network(config.model, shape, federation.num_classes)
