"""The client's side: a Flower app that carries out tasks on data that stay where they are."""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from feddst.clients.exchange import TaskReader
from feddst.core import Examples, LocalTraining, Tensors
from feddst.core.batches import form_of
from feddst.data import Dataset
from feddst.data.adapters import Source, as_records
from feddst.engines.base import Engine, results_of
from feddst.engines.select import EngineConfig, make_engine
from feddst.errors import DivergenceError, FlowerError, OptionError
from feddst.flower.memory import partition_of, store_of
from feddst.flower.messages import (
    HELLO,
    OTHER_CLIENT,
    TRAIN,
    Introduction,
    answer_message,
    introduction_message,
    read_task_message,
)
from feddst.models import ModuleSource, make_module
from feddst.runtime.config import RunConfig
from feddst.runtime.session import Loss, with_objective
from feddst.wire import ClientResult, ClientTask, Message

DataFunction = Callable[[Context], Source | Examples]
"""Gives a client's examples: a pair (inputs, targets) of arrays or tensors, a torch `Dataset` or a `DataLoader`, or
what `Federation.client_data` gives.

The node's config says which client it is.
"""


def client_app(
    model: ModuleSource, data: DataFunction, *, loss: Loss | None = None, engine: EngineConfig | None = None
) -> ClientApp:
    """A Flower app that carries out the training tasks of our `Strategy`.

    `model` is a module or a function that makes one, the same as the server's. `data(context)` gives this client's
    images and labels; `context.node_config["partition-id"]` says which client it is. `loss` is what clients minimise
    if it is a function or an objective of your own, the same as the server's.
    """
    with_objective(RunConfig(), loss, ())
    worker = Worker(model, data, engine or EngineConfig())
    return app_of(lambda context: worker)


def app_of(worker_for: "Callable[[Context], Worker]") -> ClientApp:
    """The app whose work is done by the worker for a context."""
    app = ClientApp()

    @app.train(TRAIN.partition(".")[2])
    def train(message: FlowerMessage, context: Context) -> FlowerMessage:
        run, task = read_task_message(message)
        try:
            result = worker_for(context).carry_out(run, task, context)
        except DivergenceError as error:
            result = ClientResult.failed(str(error), diverged=True)
        return answer_message(message, result)

    @app.query(HELLO.partition(".")[2])
    def hello(message: FlowerMessage, context: Context) -> FlowerMessage:
        return introduction_message(message, worker_for(context).introduce(context))

    return app


@dataclass
class _Bench:
    """An engine with its network, what it was made for, and the network's initial weights."""

    key: tuple[object, ...]
    engine: Engine
    module: nn.Module
    initial: Tensors


class Worker:
    """Carries out tasks, one after another."""

    def __init__(self, model: ModuleSource, data: DataFunction, engine: EngineConfig) -> None:
        if engine.kind == "stacked":
            raise OptionError("engine.kind must be native or reference for a client of its own, got 'stacked'")
        self._model = model
        self._data = data
        self._config = replace(engine, workers=1)
        self._bench: _Bench | None = None

    def introduce(self, context: Context) -> Introduction:
        """This client's number, and how many images it has."""
        return Introduction(partition_of(context), len(self._dataset(context).train))

    def carry_out(self, run: str, task: ClientTask, context: Context) -> ClientResult:
        """Read the broadcast, train, store the client's state, answer."""
        client, store = partition_of(context), store_of(context)
        if task.client != client:
            raise FlowerError(f"{OTHER_CLIENT} {task.client}, this is client {client}")
        data = self._dataset(context)
        bench, memory = self._prepared(task.seed, data, task.plan.local), store.load(run)
        known = replace(task, message=Message(task.message.payload, memory.held))
        sent = TaskReader(bench.module).read(known).sent
        whole = replace(
            known,
            data=data.train.read(draw=(task.seed, sent.broadcast.round, client)),
            state=memory.before(sent.broadcast.round),
            initial=bench.initial if task.plan.needs_initial else {},
        )
        [result] = results_of(bench.engine, [whole])
        store.save(run, memory.after(sent.broadcast.round, sent.bitmap, result.state))
        return result

    def _dataset(self, context: Context) -> Dataset:
        name = f"client {partition_of(context)}"
        given = self._data(context)
        pair = (given.inputs, given.targets) if isinstance(given, Examples) else given
        records = as_records(name, "data", pair)
        return Dataset(name, records, records.taken(np.arange(1)))

    def _prepared(self, seed: int, data: Dataset, local: LocalTraining) -> _Bench:
        """The engine for a seed, a form of inputs and a way to train; the last one is kept."""
        wanted = seed, form_of(data.example()), replace(local, lr=1.0, epochs=1)
        bench = self._bench
        if bench is None or bench.key != wanted:
            if bench is not None:
                bench.engine.close()
            module = copy.deepcopy(make_module(self._model, seed)).cpu()
            initial: dict[str, Tensor] = {name: value.detach().clone() for name, value in module.named_parameters()}
            engine = make_engine(self._config, module, data, local, said_at=logging.INFO)  # the server logs it
            bench = _Bench(wanted, engine, module, initial)
            self._bench = bench
        return bench
