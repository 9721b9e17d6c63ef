"""The client's side: a Flower app that carries out our orders on data that stay where they are."""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import Tensor

from feddst.clients.exchange import layout_of
from feddst.clients.task import Assignment, Reply
from feddst.core import ClientState, LocalTraining, Tensors
from feddst.data import Dataset
from feddst.data.dataset import Pair
from feddst.engines.base import AnyEngine, CohortEngine, replies_of
from feddst.engines.select import EngineConfig, make_engine
from feddst.errors import DivergenceError, FlowerError, OptionError
from feddst.flower.memory import partition_of, store_of
from feddst.flower.messages import (
    HELLO,
    OTHER_CLIENT,
    WORK,
    Introduction,
    diverged_letter,
    introduction_letter,
    read_work,
    reply_letter,
)
from feddst.flower.orders import Orders
from feddst.models import ModuleSource, make_module
from feddst.wire import Inbox, Parcel

DataFunction = Callable[[Context], Pair]
"""Gives a client's (images, labels), as numpy arrays or tensors; the node's config says which client it is."""


def client_app(model: ModuleSource, data: DataFunction, *, engine: EngineConfig | None = None) -> ClientApp:
    """A Flower app that trains sparsely whatever a `Strategy` of ours asks for.

    `model` is a module or a function that makes one, the same as the server's. `data(context)` gives this client's
    images and labels; `context.node_config["partition-id"]` says which client it is.
    """
    worker = Worker(model, data, engine or EngineConfig())
    return app_of(lambda context: worker)


def app_of(worker_for: "Callable[[Context], Worker]") -> ClientApp:
    """The app whose work is done by the worker for a context."""
    app = ClientApp()

    @app.train(WORK.partition(".")[2])
    def train(message: Message, context: Context) -> Message:
        orders, payload = read_work(message)
        try:
            return reply_letter(message, worker_for(context).carry_out(orders, payload, context))
        except DivergenceError as error:
            return diverged_letter(message, str(error))

    @app.query(HELLO.partition(".")[2])
    def hello(message: Message, context: Context) -> Message:
        return introduction_letter(message, worker_for(context).introduce(context))

    return app


@dataclass
class _Bench:
    """An engine with a network, what it was made for, and the weights that the network began with."""

    key: tuple[object, ...]
    engine: AnyEngine
    initial: Tensors
    inbox_for: Callable[[frozenset[str]], Inbox]


class Worker:
    """Carries out orders, one after another."""

    def __init__(self, model: ModuleSource, data: DataFunction, engine: EngineConfig) -> None:
        if engine.kind == "stacked":
            raise OptionError("engine.kind must be native or reference for a client of its own, got 'stacked'")
        self._model = model
        self._data = data
        self._config = replace(engine, workers=1)
        self._bench: _Bench | None = None

    def introduce(self, context: Context) -> Introduction:
        """What this client says of itself."""
        return Introduction(partition_of(context), len(self._images(context).train_labels))

    def carry_out(self, orders: Orders, payload: bytes, context: Context) -> Reply:
        """Open the broadcast, train, remember, answer."""
        client, store = partition_of(context), store_of(context)
        if orders.client != client:
            raise FlowerError(f"{OTHER_CLIENT} {orders.client}, this is client {client}")
        images = self._images(context)
        bench, memory = self._prepared(orders.seed, images, orders.plan.local), store.load(orders.run)
        reference = bench.inbox_for(orders.plan.keep).open(payload, memory.held)
        round = reference.broadcast.round
        reply = self._trained(bench, orders, Parcel(payload, memory.held), images, memory.before(round))
        store.save(orders.run, memory.after(round, reference.bitmap, reply.state))
        return reply

    def _trained(self, bench: _Bench, orders: Orders, parcel: Parcel, images: Dataset, kept: ClientState) -> Reply:
        plan = orders.plan
        assignment = Assignment(
            client=orders.client,
            seed=orders.seed,
            parcel=parcel,
            plan=plan,
            inputs=images.inputs(images.train_images),
            labels=images.train_labels,
            state=kept,
            wire=orders.wire,
            initial=bench.initial if plan.needs_initial else {},
        )
        assert not isinstance(bench.engine, CohortEngine)
        return replies_of(bench.engine, [assignment])[0]

    def _images(self, context: Context) -> Dataset:
        images, labels = self._data(context)
        return Dataset.from_arrays((images, labels), (images[:1], labels[:1]), name=f"client {partition_of(context)}")

    def _prepared(self, seed: int, images: Dataset, local: LocalTraining) -> _Bench:
        """The engine for a seed, a shape, an objective and an optimizer; the last one is kept."""
        wanted = seed, images.input_shape, local.objective, local.optimizer
        bench = self._bench
        if bench is None or bench.key != wanted:
            if bench is not None:
                bench.engine.close()
            module = copy.deepcopy(make_module(self._model, seed)).cpu()
            initial: dict[str, Tensor] = {name: value.detach().clone() for name, value in module.named_parameters()}
            engine = make_engine(self._config, module, images, local, said_at=logging.INFO)  # the server says it
            bench = _Bench(wanted, engine, initial, lambda keep: Inbox(layout_of(module, keep)))
            self._bench = bench
        return bench
