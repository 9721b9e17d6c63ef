"""Client steps: which classes may be one, and every engine carries out those of others as the plain one does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import feddst
from feddst.clients import Client
from feddst.clients.steps import Readjust
from feddst.core import Aggregator, ClientPlan, ClientStep, Examples, LocalTraining, ServerState, Tensors, register
from feddst.core.step import STEPS
from feddst.data import Dataset, Federation
from feddst.flower import InProcessGrid, Strategy, client_app
from feddst.methods import METHODS, Card, FedDST, RandomMask
from feddst.runtime.loop import Silent
from feddst.runtime.run import Run

KINDS = ("reference", "native", "stacked")


@dataclass(frozen=True)
class Diary(ClientStep):
    """Has every hook but `begin` and `train`. A client reports how often each was called, and its rounds."""

    name: ClassVar[str] = "diary"

    share: float

    @property
    def looks_at_batches(self) -> bool:
        return True

    def before_batch(self, client: Client, batch: NDArray[np.int64]) -> None:
        client.scratch["images"] = client.scratch.get("images", 0) + len(batch)

    def at_gradient(self, gradient: Tensor, theta: Tensor, received: Tensor) -> None:
        gradient.mul_(self.share)

    def pauses(self, epochs: int) -> Sequence[int]:
        return range(1, epochs + 1)

    def after_epoch(self, client: Client, last_batch: NDArray[np.int64]) -> None:
        client.scratch["epochs"] = client.scratch.get("epochs", 0) + 1

    @property
    def groups(self) -> tuple[str, ...]:
        return ("diary",)

    def reports(self, client: Client) -> Mapping[str, Tensors]:
        found = client.scratch["images"] + 100 * client.scratch["epochs"] + 1000 * self._rounds(client)
        return {"diary": {name: torch.full(value.shape, float(found)) for name, value in client.params.items()}}

    def keeps(self, client: Client) -> Tensors:
        return {"diary/rounds": torch.tensor([self._rounds(client) + 1])}

    def _rounds(self, client: Client) -> int:
        return int(client.task.state.tensors.get("diary/rounds", torch.zeros(1)))


@dataclass(frozen=True)
class Dear(FedDST):
    """FedDST whose clients keep a diary; the server remembers what it says on average."""

    name: ClassVar[str] = "dear"
    summary: ClassVar[str] = "FedDST with a diary"
    card: ClassVar[Card] = Card("nobody")
    keeps_state: ClassVar[bool] = True

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        return super().plan(state, client).adding(Diary(0.5))

    def aggregate(self, state: ServerState, total: Aggregator) -> ServerState:
        said = {f"diary/{name}": value for name, value in total.mean("diary").items()}
        return replace(super().aggregate(state, total), extra=said)


@dataclass(frozen=True)
class Still(Readjust):
    """A readjustment that leaves masks as they are."""

    name: ClassVar[str] = "still"

    def after_epoch(self, client: Client, last_batch: NDArray[np.int64]) -> None:
        client.scratch["still"] = True


@dataclass(frozen=True)
class Calm(FedDST):
    """FedDST whose readjustments do nothing."""

    name: ClassVar[str] = "calm"
    summary: ClassVar[str] = "FedDST that stays"
    card: ClassVar[Card] = Card("nobody")

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        plan = super().plan(state, client)
        steps = tuple(Still(**vars(step)) if isinstance(step, Readjust) else step for step in plan.steps)
        return replace(plan, steps=steps)


@dataclass(frozen=True)
class Stubborn(RandomMask):
    """Has clients train with AdamW, whatever the config says."""

    name: ClassVar[str] = "stubborn-rmsprop"
    summary: ClassVar[str] = "RandomMask with AdamW on clients"
    card: ClassVar[Card] = Card("nobody")
    optimizer: ClassVar[str] = "rmsprop"

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        return ClientPlan(replace(self.local, optimizer=self.optimizer))


@dataclass(frozen=True)
class StubbornAdam(Stubborn):
    """The same with Adam, which the compiled kernels know."""

    name: ClassVar[str] = "stubborn-adam"
    summary: ClassVar[str] = "RandomMask with Adam on clients"
    card: ClassVar[Card] = Card("nobody")
    optimizer: ClassVar[str] = "adam"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    registries: tuple[dict[str, Any], ...] = (STEPS, METHODS)
    known = [dict(registry) for registry in registries]
    for one in (Diary, Dear, Still, Calm, Stubborn, StubbornAdam):
        register(one)
    yield
    for registry, before in zip(registries, known, strict=True):
        registry.clear()
        registry.update(before)


def test_a_step_is_a_frozen_dataclass() -> None:
    class Bare(ClientStep):
        name: ClassVar[str] = "bare"

    @dataclass
    class Loose(ClientStep):
        name: ClassVar[str] = "loose"

    @dataclass(frozen=True)
    class Firm(ClientStep):
        name: ClassVar[str] = "firm"

    class Heir(Firm):
        name: ClassVar[str] = "heir"

    for kind in (Bare, Loose, Heir):
        with pytest.raises(
            TypeError, match=rf"write @dataclass\(frozen=True\) between @feddst.register and {kind.__name__}"
        ):
            register(kind)
    register(Firm)
    assert STEPS["firm"] is Firm
    with pytest.raises(TypeError, match="a client step must be a class that implements ClientStep"):
        register(Firm())


def test_a_step_that_says_nothing_changes_nothing() -> None:
    @register
    @dataclass(frozen=True)
    class Idle(ClientStep):
        name: ClassVar[str] = "idle"

    plan, gradient = ClientPlan(LocalTraining(epochs=3), steps=(Idle(),)), torch.ones(2)
    Idle().at_gradient(gradient, torch.zeros(2), torch.zeros(2))
    assert gradient.tolist() == [1, 1]
    assert (plan.keeps_state, plan.needs_initial, plan.groups, plan.own_layers) == (False, False, (), ())
    assert (plan.passes, plan.trained_on(7), plan.differentiated(7)) == (3, 7, 0)
    assert plan.mask_bounds("layer", 5) is None
    assert not Idle().changes_gradients


def test_whoever_has_an_at_gradient_changes_gradients() -> None:
    @dataclass(frozen=True)
    class Halving(ClientStep):
        def at_gradient(self, gradient: Tensor, theta: Tensor, received: Tensor) -> None:
            gradient.mul_(0.5)

    assert Halving().changes_gradients


class Ended(Silent):
    """Remembers the run."""

    run: Run

    def started(self, runs: Sequence[Run]) -> None:
        [self.run] = runs


@pytest.fixture
def federation(dataset: Dataset) -> Federation:
    """Four clients of ten images."""
    parts = [slice(10 * client, 10 * client + 10) for client in range(4)]
    clients = [(dataset.train_images[part], dataset.train_labels[part]) for part in parts]
    return Federation.from_clients(train=clients, test=(dataset.test_images[:50], dataset.test_labels[:50]))


def config_of(method: str, kind: str = "reference", **local: Any) -> feddst.RunConfig:
    options: dict[str, Any] = {
        "rounds": 2,
        "data": {"clients": 4},
        "cohort": {"size": 4},
        "local": {"epochs": 2, "batch": 4, "lr": 0.05, **local},
        "engine": {"kind": kind, "workers": 1},
    }
    if method not in ("stubborn-rmsprop", "stubborn-adam", "randommask"):
        options["readjust"] = {"every": 1, "alpha": 0.3}
    return feddst.configure(method=method, **options)


def ended(config: feddst.RunConfig, module: nn.Module, federation: Federation) -> Run:
    watcher = Ended()
    feddst.run(config, model=module, data=federation, watcher=watcher)
    return watcher.run


@pytest.mark.parametrize("kind", KINDS)
def test_every_hook_is_called_and_what_is_kept_is_there_again(
    kind: str, module: nn.Sequential, federation: Federation
) -> None:
    """Two epochs of ten images, in the second round: 20 + 100·2 + 1000·1."""
    run = ended(config_of("dear", kind), module, federation)
    assert all((value == 1220).all() for name, value in run.state.extra.items() if name.startswith("diary/"))
    assert [int(run.clients[client].tensors["diary/rounds"]) for client in range(4)] == [2] * 4
    plain = ended(config_of("dear"), module, federation)
    for name, value in plain.state.params.items():
        torch.testing.assert_close(run.state.params[name], value, rtol=0, atol=1e-4)


def test_they_are_called_over_flower_too(module: nn.Sequential, federation: Federation) -> None:
    def images(context: Any) -> tuple[Tensor, Tensor]:
        examples = federation.data_of(int(context.node_config["partition-id"])).load()
        assert isinstance(examples, Examples)
        return examples.pair

    config, watcher = config_of("dear"), Ended()
    strategy = Strategy(config, model=module, data=federation, watcher=watcher)
    strategy.start(InProcessGrid(client_app(module, images, engine=config.engine), 4))
    plain = ended(config, module, federation)
    for name, value in plain.state.params.items():
        assert torch.equal(watcher.run.state.params[name], value)
    for name, value in plain.state.extra.items():
        assert torch.equal(watcher.run.state.extra[name], value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_inherits_is_not_taken_for_its_parent(
    kind: str, module: nn.Sequential, federation: Federation
) -> None:
    result = feddst.run(config_of("calm", kind), model=module, data=federation, watcher=Silent())
    assert all(row.entered == row.left == 0 for row in result.rows)
    moving = feddst.run(config_of("feddst", kind), model=module, data=federation, watcher=Silent())
    assert moving.rows[-1].entered > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_an_optimizer_of_the_plan_alone_is_used(
    optimizer: str, kind: str, module: nn.Sequential, federation: Federation, caplog: pytest.LogCaptureFixture
) -> None:
    run = ended(config_of(f"stubborn-{optimizer}", kind, lr=0.001), module, federation)
    said = [record.getMessage() for record in caplog.records if "local.optimizer is" in record.getMessage()]
    assert len(said) == (kind == "native" and optimizer == "rmsprop")
    plain = ended(config_of("randommask", lr=0.001, optimizer=optimizer), module, federation)
    for name, value in plain.state.params.items():
        torch.testing.assert_close(run.state.params[name], value, rtol=0, atol=1e-5)
