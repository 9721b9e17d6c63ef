"""The server's side: any of our methods as a Flower strategy."""

import copy
import hashlib
import json
import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from torch import nn

from feddst.clients.reproducible import reproducible
from feddst.core.batches import Batch, tensors_of
from feddst.data import Dataset, Federation, RemoteFederation, clients_of
from feddst.engines.base import Engine, EvalTask, Evaluation
from feddst.errors import CheckpointError, OptionError
from feddst.flower.config import FlowerConfig
from feddst.flower.engine import FlowerEngine
from feddst.flower.memory import keeps_state
from feddst.flower.message_client import Answer
from feddst.models import ModuleSource, initial_model, make_module, outputs_for
from feddst.options import updated, validate
from feddst.runtime.config import CHANGEABLE, RunConfig, options_to_store
from feddst.runtime.ema import result_of
from feddst.runtime.lines import Lines
from feddst.runtime.lock import Lock
from feddst.runtime.loop import SharedRound, Silent, Watcher, play
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.session import built_in, engine_of, open_run, run_directory
from feddst.runtime.storage import RunDirectory, identity_of
from feddst.runtime.wording import counted, percent

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]
"""Evaluates a model: takes the round and the weights, as in Flower's own strategies."""

_NAME_BYTES = 12
"""The length of a run's name, which is written in hexadecimal."""


@dataclass
class _Opened:
    """A run under way on a grid."""

    run: Run
    engine: FlowerEngine
    local: Engine | None
    lock: Lock | None

    def close(self) -> None:
        """Close the engine that evaluates models here, and unlock the run's directory."""
        if self.local is not None:
            self.local.close()
        if self.lock is not None:
            self.lock.release()


class Strategy(FlowerStrategy):
    """Runs one of our methods on Flower nodes that run `client_app`.

    `config` holds the options of `feddst run`: method, sparsity, rounds. `data.clients` in it is the number of nodes,
    which have partition ids from 0. `model` is a module, or a function that makes one. Models are evaluated on `data`,
    or else on what `config.data` names; a server without images is given an `example` input [1, …] instead, and
    evaluates with `evaluate_fn`. With `out` the run is written to that directory as by `feddst run`, and `resume`
    continues the run there.
    """

    def __init__(
        self,
        config: RunConfig | None = None,
        *,
        model: ModuleSource | None = None,
        data: Dataset | Federation | None = None,
        example: Batch | None = None,
        flower: FlowerConfig | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        watcher: Watcher | None = None,
    ) -> None:
        self._config = config or RunConfig()
        if isinstance(data, Federation):
            self._config = updated(self._config, {"data.clients": data.num_clients})
        self._config.check()
        if example is not None and (model is None or data is not None):
            raise OptionError("an example input is for a model of your own, on data that the server does not have")
        self._flower = flower or FlowerConfig()
        validate(self._flower)
        self._model = model
        self._data = data
        self._example = example
        self._out = out
        self._resume = resume
        self._watcher = watcher
        self._opened: _Opened | None = None
        self._step: SharedRound | None = None
        self._composed: list[tuple[int, Message]] = []

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> Result:
        """All rounds, in a loop of our own: answers are fetched and added up as they come.

        `num_rounds` and `timeout`, the seconds a round may last, stand in for `rounds` and `deadline` of the config.
        `evaluate_fn` is called as often as the config says.
        """
        if train_config or evaluate_config:
            raise OptionError("what clients do is said by the config: train_config and evaluate_config must be empty")
        opened = self._open(grid, initial_arrays, num_rounds, timeout)
        minutes = _Minutes(opened.run, evaluate_fn, self._watcher or Lines())
        with closing(opened):
            if not opened.run.stopped_by:
                opened.engine.nodes.gather(self._flower.wait)
            play([opened.run], opened.engine, minutes)
        minutes.result.arrays = arrays_of(opened.run)
        if self._watcher is None:
            print(minutes.closing(opened.run), file=sys.stderr, flush=True)
        self._opened = None
        return minutes.result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """For Flower's own loop: the messages of a round."""
        if self._opened is None:
            self._opened = self._open(grid, arrays, None, None)
            self._opened.engine.nodes.gather(self._flower.wait)
        opened = self._opened
        if opened.run.stopped_by:
            return []
        with reproducible():
            self._step = SharedRound([opened.run])
            self._composed = list(opened.engine.compose(self._step.tasks, self._step))
        return [message for _, message in self._composed]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """For Flower's own loop: aggregate the replies."""
        opened, step = self._opened, self._step
        if opened is None or step is None:
            return None, None
        engine, run, self._step = opened.engine, opened.run, None
        composed, self._composed = self._composed, []
        for index, message in composed:
            engine.expect(message, index, step.tasks[index].client)
        with reproducible():
            for reply in replies:
                engine.take(Answer(reply.metadata.reply_to_message_id, reply), step)
            engine.call_time(in_time=False)
            step.close(engine, Silent())
        for failure in step.failures.values():
            raise failure
        if run.stopped_by:
            opened.close()
        return arrays_of(run), metrics_of(run.rows[-1])

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No messages: models are evaluated on the server."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """No metrics: clients do not evaluate."""
        return None

    def summary(self) -> None:
        """Print nothing: the config says it all."""

    def _open(self, grid: Grid, arrays: ArrayRecord | None, rounds: int | None, deadline: float | None) -> _Opened:
        config = self._config if rounds is None else replace(self._config, rounds=rounds)
        flower = self._flower if deadline is None else replace(self._flower, deadline=deadline)
        config.check()
        validate(flower)
        images: dict[int, int] = {}
        federation = self._federation(config, images)
        source = built_in(config, federation) if self._model is None else self._model
        module = copy.deepcopy(make_module(source, config.seed)).cpu()
        if arrays:
            module.load_state_dict(arrays.to_torch_state_dict())
        directory = run_directory(self._out, config, self._resume)
        with ExitStack() as held:
            lock = None if directory is None else held.enter_context(Lock(directory.path))
            if directory is not None and keeps_state(config):
                _check_kept(config, directory, self._resume)
            run, _ = open_run(config, federation, module, directory, self._resume, untrusted=True, spare=flower.spare)
            if arrays and run.method.plan(run.state, 0).needs_initial:
                raise OptionError(
                    f"initial_arrays cannot be given with {config.method}, whose clients draw them from the seed: use "
                    "Strategy.start without them, as Flower's own loop always gives some"
                )
            name = name_of(run, module)
            if self._resume:
                run.forget_holders()
            held.pop_all()
        local = engine_of(config, module, federation.dataset) if isinstance(federation, Federation) else None
        engine = FlowerEngine(
            grid,
            flower,
            run=name,
            clients=federation.num_clients,
            images=images,
            evaluate=_nothing if local is None else local.evaluate,
            late=run.receive_late,
            spare=run.spare,
            least=config.min_clients,
        )
        return _Opened(run, engine, local, lock)

    def _federation(self, config: RunConfig, images: dict[int, int]) -> Federation | RemoteFederation:
        if self._example is None:
            return clients_of(config.data, config.seed, self._data)
        assert self._model is not None
        module = copy.deepcopy(make_module(self._model, config.seed))
        outputs = tensors_of(outputs_for(module, self._example))[0]
        return RemoteFederation(self._example, outputs.shape[1:].numel(), config.data.clients, images)


class _Minutes:
    """A watcher that fills Flower's result, and calls the evaluate function if there is one."""

    def __init__(self, run: Run, evaluate: EvaluateFunction | None, watcher: Watcher) -> None:
        self.result = Result()
        self._evaluate = evaluate
        self._watcher = watcher
        self._every = run.config.eval_every

    def started(self, runs: Sequence[Run]) -> None:
        self._watcher.started(runs)

    def row(self, run: Run, row: Row) -> None:
        self.result.train_metrics_clientapp[row.round] = metrics_of(row)
        if self._evaluate is not None and (row.round % self._every == 0 or run.stopped_by):
            found = self._evaluate(row.round, arrays_of(run))
            if found is not None:
                self.result.evaluate_metrics_serverapp[row.round] = found
        self._watcher.row(run, row)

    def closing(self, run: Run) -> str:
        """A line on how good the final model is."""
        tested = self.result.evaluate_metrics_serverapp
        scores = [_score(*each) for each in tested[max(tested)].items()] if tested else []
        for accuracy in [row.accuracy for row in run.rows if row.accuracy is not None][-1:]:
            scores.insert(0, f"accuracy {percent(accuracy, 2)}")
        found = ", ".join(scores) or "nothing is known of its accuracy: the server has neither data nor evaluate_fn"
        return f"{run.name}, after {counted(len(run.rows), 'round')}: {found}"

    def stop(self) -> bool:
        return self._watcher.stop()


def _score(name: str, value: object) -> str:
    return f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"


def arrays_of(run: Run) -> ArrayRecord:
    """The global model, as Flower has it: a state dict."""
    found = result_of(run.state)
    return ArrayRecord({**found.params, **found.buffers})


def metrics_of(row: Row) -> MetricRecord:
    """A round's row, without unknown values."""
    return MetricRecord({name: value for name, value in vars(row).items() if value is not None})


def name_of(run: Run, module: nn.Module) -> str:
    """The name by which clients store a run's state: the same when the run is resumed.

    It stands in the run's directory. A run without one cannot be resumed: those of the same options share a name, so
    that clients do not store more with each of them.
    """
    if run.directory is None:
        options = {name: value for name, value in options_to_store(run.config).items() if name not in CHANGEABLE}
        text = json.dumps(options, sort_keys=True) + identity_of(initial_model(module), run.federation)
        return hashlib.blake2b(text.encode(), digest_size=_NAME_BYTES).hexdigest()
    name = run.directory.stored_name()
    if not name:
        name = secrets.token_hex(_NAME_BYTES)
        run.directory.write_name(name)
    return name


def _check_kept(config: RunConfig, directory: RunDirectory, resume: bool) -> None:
    """Raise if what clients keep would not fit the server's state after it was resumed."""
    which = f"{config.method} and wire.feedback" if config.wire.feedback else config.method
    if config.checkpoint_every != 1:
        every = config.checkpoint_every
        raise OptionError(f"checkpoint_every must be 1 with {which}, whose clients go back one round only, got {every}")
    if resume and not directory.stored_name():
        raise CheckpointError(
            f"{directory.path} has no {directory.name.name}, the name by which clients store what they keep with "
            f"{which}: they would begin anew. Go on with the version and command that began the run, or begin it again "
            "in another directory"
        )


def _nothing(tasks: Sequence[EvalTask]) -> list[Evaluation]:
    assert not tasks
    return []
