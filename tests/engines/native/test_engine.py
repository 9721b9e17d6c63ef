"""The native engine against the reference engine: every method's rounds, every kind of work, whole runs.

Both engines get the same bytes and compute in float32, so that weights differ by rounding. Where a mask follows from
them, numbers that are exactly the same tie in both engines and are taken in the order of their positions; numbers that
differ by less than rounding could change places, but none are that close here, for any instruction set.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from feddst import _native
from feddst.clients import Client, finished
from feddst.clients import reference as torch_client
from feddst.clients.steps import Growth, InitialPruning, LotteryPruning, Proximal, Readjust, Report
from feddst.core import (
    Broadcast,
    ClientPlan,
    ClientState,
    Examples,
    LocalTraining,
    Masks,
    Tensors,
    Update,
    masked,
)
from feddst.data import Dataset, federate
from feddst.engines import EngineConfig, EvalTask, ReferenceEngine, make_engine, results_of
from feddst.engines.base import Evaluation, Results
from feddst.engines.native.chain import read_chain
from feddst.engines.native.engine import NativeEngine
from feddst.engines.native.library import ISA_VARIABLE
from feddst.errors import OptionError, TrainingError, WireError
from feddst.methods import METHODS
from feddst.models import initial_model, make_module
from feddst.runtime import RunConfig, run
from feddst.runtime.config import config_of
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.old_names import METHODS as CROSSED
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.wire import ClientResult, ClientTask, Message, Reference, decode_broadcast, decode_update, model_layout

ISAS = _native.supported()
LOCAL = LocalTraining(epochs=3, batch=7, lr=0.05, momentum=0.9, l2=0.001)
WITH_ADAM = replace(LOCAL, optimizer="adam", lr=0.003)
WEIGHTS = 1e-4
"""How far weights may be apart."""
TrainClient = Callable[[nn.Module, ClientTask], Client]


def network() -> nn.Sequential:
    """All kinds of layers, small: 1×8×8 images, 4 classes."""
    return nn.Sequential(
        nn.Conv2d(1, 5, 3, padding=1),
        nn.MaxPool2d(3, stride=1),
        nn.ReLU(),
        nn.Conv2d(5, 6, 3, stride=2, padding=1, bias=False),
        nn.ReLU(),
        nn.AvgPool2d(2, stride=1, padding=1, count_include_pad=False),
        nn.Flatten(),
        nn.Linear(96, 12),
        nn.ReLU(),
        nn.Linear(12, 4),
    )


@pytest.fixture
def module() -> nn.Module:
    return make_module(network, 5)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """Four blurred patterns, which can be learnt."""
    draws = torch.Generator().manual_seed(3)
    centres, labels = torch.randn(4, 1, 8, 8, generator=draws), torch.arange(1200) % 4
    images = centres[labels] + 0.8 * torch.randn(1200, 1, 8, 8, generator=draws)
    return Dataset.from_arrays(train=(images[:400], labels[:400]), test=(images[400:], labels[400:]))


SMALL: dict[str, Any] = {
    "rounds": 4,
    "eval_every": 2,
    "checkpoint_every": 1,
    "data.clients": 6,
    "data.classes_per_client": 2,
    "data.images_per_class": 12,
    "cohort.size": 3,
    "local.epochs": 2,
    "local.batch": 7,
    "local.lr": 0.05,
    "engine.workers": 2,
    "sparsity.level": 0.6,
    "readjust.every": 2,
    "readjust.until": 5,
    "readjust.alpha": 0.3,
}


def config(**changes: Any) -> RunConfig:
    return config_of({**SMALL, **{name.replace("__", "."): value for name, value in changes.items()}})


OWN: dict[str, dict[str, Any]] = {
    "prunefl": {"prunefl__layer_times": "flops", "prunefl__every": 1, "prunefl__initial_rounds": 3},
    "lotteryfl": {"lottery__threshold": 0.0},
    "sign-sgd": {"wire__values": "sign"},
}
"""What some methods need to show all they can in a few rounds."""


def right_of(evaluation: Evaluation) -> torch.Tensor:
    """Which test images a model gets right."""
    return evaluation.added["accuracy"][:, 0]


def native_engine(module: nn.Module, dataset: Dataset, workers: int = 1) -> NativeEngine:
    return NativeEngine(copy.deepcopy(module), read_chain(module, dataset.input_shape), dataset, workers)


def reference_engine(module: nn.Module, dataset: Dataset) -> ReferenceEngine:
    return ReferenceEngine(copy.deepcopy(module), dataset, torch.device("cpu"))


@pytest.fixture
def engines(module: nn.Module, digits: Dataset) -> Iterator[tuple[ReferenceEngine, NativeEngine]]:
    with closing(native_engine(module, digits)) as native:
        yield reference_engine(module, digits), native


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each instruction set in turn; must come before `engines`."""
    monkeypatch.setenv(ISA_VARIABLE, request.param)
    return str(request.param)


def update_in(result: ClientResult, task: ClientTask, module: nn.Module) -> Update:
    params = {name: value for name, value in module.named_parameters() if name not in task.plan.keep}
    sent = decode_broadcast(task.message.payload, model_layout(params, {}), task.message.held)
    assert result.payload is not None
    return decode_update(result.payload, task.read_as(Reference(sent)))


def assert_tensors_near(found: Tensors, expected: Tensors, tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value.is_floating_point():
            assert found[name].shape == value.shape, name
            assert float((found[name] - value).abs().max()) <= tolerance, name
        else:
            assert torch.equal(found[name], value)


def assert_masks_same(found: Masks | None, expected: Masks | None) -> None:
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], mask) for name, mask in expected.items())


def assert_updates_agree(found: Update, expected: Update) -> None:
    assert (found.client, found.round, found.weight) == (expected.client, expected.round, expected.weight)
    assert_masks_same(found.masks, expected.masks)
    assert_tensors_near(found.params, expected.params, WEIGHTS)
    assert found.extra.keys() == expected.extra.keys()
    for kind, tensors in expected.extra.items():
        most = max(float(value.abs().max()) for value in tensors.values())
        assert_tensors_near(found.extra[kind], tensors, 0.0 if kind == "sign" else 1e-4 * most)


class Refusing(Results):
    """Takes no result."""

    def result(self, index: int, result: ClientResult) -> bool:
        assert result.payload is not None
        raise WireError(f"refused: {len(result.payload)} bytes of task {index}")


def assert_results_agree(
    found: Sequence[ClientResult], expected: Sequence[ClientResult], tasks: Sequence[ClientTask], module: nn.Module
) -> None:
    for mine, right, task in zip(found, expected, tasks, strict=True):
        assert_updates_agree(update_in(mine, task, module), update_in(right, task, module))
        assert_tensors_near(mine.state.tensors, right.state.tensors, WEIGHTS)
        assert mine.loss == pytest.approx(right.loss, abs=1e-5)


# Rounds of every method.


def play_beside(
    options: RunConfig, module: nn.Module, data: Dataset, engines: tuple[ReferenceEngine, NativeEngine], rounds: int
) -> list[Sequence[ClientTask]]:
    """Some rounds of a run in which both engines carry out the same tasks; the reference's results count."""
    reference, native = engines
    one, played = Run(options, federate(options.data, options.seed, data), module), list[Sequence[ClientTask]]()
    for _ in range(rounds):
        tasks = one.open_round()
        expected = results_of(reference, tasks)
        assert_results_agree(results_of(native, tasks), expected, tasks, module)
        for place, result in enumerate(expected):
            assert one.round.take(place, result)
        one.close_round()
        models = one.eval_tasks()
        one.record(reference.evaluate(models))
        for mine, right in zip(native.evaluate(models), reference.evaluate(models), strict=True):
            assert mine.loss == pytest.approx(right.loss, abs=1e-5)
            assert int((right_of(mine) != right_of(right)).sum()) <= len(right_of(right)) // 200
        played.append(tasks)
    return played


@pytest.mark.parametrize("method", [*METHODS, *CROSSED])
def test_every_method_gets_the_results_that_the_reference_gives(
    method: str, module: nn.Module, digits: Dataset, engines: tuple[ReferenceEngine, NativeEngine]
) -> None:
    played = play_beside(config(method=method, **OWN.get(method, {})), module, digits, engines, rounds=3)
    assert all(len(tasks) >= 1 for tasks in played)
    plans = [task.plan for tasks in played for task in tasks]
    assert any(plan.step(Readjust) is not None for plan in plans) == method.startswith("feddst")
    assert any(plan.step(Proximal) is not None for plan in plans) == ("prox" in method)
    assert any(plan.step(LotteryPruning) is not None for plan in plans) == (method == "lotteryfl")
    assert any(bool(plan.keep) for plan in plans) == (method == "lg-fedavg")
    reports = {group for plan in plans for group in plan.groups}
    assert reports == {
        "snip": {"gradient"},
        "grasp": {"hessian-gradient"},
        "prunefl": {"kept", "squared-gradient"},
        "sign-sgd": {"sign"},
    }.get(method, set())


@pytest.mark.parametrize(
    "options",
    [
        {"method": "fedavgm"},
        {"method": "feddst", "proximal__mu": 1.0},
        {"method": "feddst", "local__optimizer": "adam", "local__lr": 0.003},
    ],
)
def test_every_instruction_set_trains_as_the_reference_does(
    isa: str, options: dict[str, Any], module: nn.Module, digits: Dataset, engines: tuple[ReferenceEngine, NativeEngine]
) -> None:
    play_beside(config(**options, readjust__every=1), module, digits, engines, rounds=2)


def test_stragglers_stop_where_the_reference_stops(
    module: nn.Module, digits: Dataset, engines: tuple[ReferenceEngine, NativeEngine]
) -> None:
    options = config(method="feddst", proximal__mu=1.0, cohort__stragglers=0.7, local__epochs=4, readjust__every=1)
    played = play_beside(options, module, digits, engines, rounds=2)
    assert {task.plan.local.epochs for tasks in played for task in tasks} > {4}


# Every kind of work, one at a time.

MASKED = ("0.weight", "3.weight", "7.weight")
BUDGETS = {"0.weight": 20, "3.weight": 110, "7.weight": 400}
DROP = {"0.weight": 4, "3.weight": 30, "7.weight": 150}


def readjust(after_epoch: int = 3, **growth: Any) -> ClientPlan:
    return ClientPlan(LOCAL, (Readjust(after_epoch, DROP, BUDGETS, Growth(**growth)),))


def report(kind: Any, **options: Any) -> ClientPlan:
    return ClientPlan(LOCAL, (Report(kind, **options),))


def by_adam(plan: ClientPlan, **changes: Any) -> ClientPlan:
    return replace(plan, local=replace(WITH_ADAM, **changes))


WORKS: dict[str, ClientPlan] = {
    "plain": ClientPlan(LOCAL),
    "no momentum": ClientPlan(replace(LOCAL, momentum=0.0, l2=0.0)),
    "fixed order": ClientPlan(replace(LOCAL, order="fixed")),
    "one minibatch": ClientPlan(replace(LOCAL, batch=100)),
    "single images": ClientPlan(replace(LOCAL, batch=1, epochs=1, lr=0.01)),
    "proximal": ClientPlan(LOCAL, (Proximal(0.5),)),
    "proximal without effect": ClientPlan(LOCAL, (Proximal(0.5, gradient="detached"),)),
    "proximal of size 0": ClientPlan(LOCAL, (Proximal(0.0),)),
    "cut short": ClientPlan(LOCAL, (Proximal(0.5),)).shortened(2),
    "readjusted at the end": readjust(),
    "readjusted in between": readjust(1),
    "readjusted in between with a proximal term": readjust(1).adding(Proximal(0.5)),
    "readjusted by a straggler": readjust(3).shortened(1),
    "grown at random": readjust(2, rule="random"),
    "grown from any": readjust(2, grow_from="any"),
    "grown by the last minibatch": readjust(2, images="last-batch"),
    "grown by few images": readjust(2, max_images=9),
    "grown before the drop": readjust(1, weights="unpruned"),
    "grown as published": readjust(1, grow_from="any", images="last-batch", weights="unpruned"),
    "gradient": report("gradient"),
    "gradient of a minibatch, warm": report("gradient", images="minibatch", temperature=20.0),
    "gradient of a balanced minibatch": report("gradient", images="balanced"),
    "hessian-gradient": report("hessian-gradient"),
    "hessian-gradient of a balanced minibatch, warm": report("hessian-gradient", images="balanced", temperature=20.0),
    "hessian-gradient of some weights over all minibatches": report(
        "hessian-gradient", images="minibatches", temperature=20.0, within=frozenset({"0.weight", "7.weight"})
    ),
    "squared gradients": report("squared-gradient"),
    "squared gradients of a proximal client": report("squared-gradient").adding(Proximal(0.5)),
    "squared gradients, readjusted in between": readjust(1).adding(Report("squared-gradient")),
    "squared gradients and the last": ClientPlan(
        LOCAL,
        (
            Report("squared-gradient"),
            Report("gradient"),
        ),
    ),
    "squared gradients of no steps": replace(report("squared-gradient"), train=False),
    "settled on masks": ClientPlan(
        replace(LOCAL, lr=0.05),
        (InitialPruning(6, 2, 0.3, {"0.weight": 3.0, "3.weight": 2.0, "7.weight": 1.0}, 100.0),),
    ),
    "signs": report("sign", bound=0.05),
    "two reports": ClientPlan(
        LOCAL,
        (
            Report("gradient"),
            Report("hessian-gradient"),
        ),
    ),
    "reports without training": replace(report("gradient"), train=False),
    "readjusted, then reported": readjust(1).adding(Report("gradient")),
    "readjusted at the end, then reported": readjust().adding(Report("gradient")),
    "readjusted at the end with a kept head": replace(readjust(), keep=frozenset({"9.weight", "9.bias"})),
    "kept head": ClientPlan(LOCAL, keep=frozenset({"9.weight", "9.bias"})),
    "kept head and reports": replace(report("gradient"), keep=frozenset({"9.weight", "9.bias"})),
    "adam": by_adam(ClientPlan(LOCAL)),
    "adam, no l2": by_adam(ClientPlan(LOCAL), l2=0.0),
    "adam, one minibatch": by_adam(ClientPlan(LOCAL), batch=100),
    "adam, proximal": by_adam(ClientPlan(LOCAL, (Proximal(0.5),))),
    "adam, readjusted in between": by_adam(readjust(1)),
    "adam, readjusted in between with a proximal term": by_adam(readjust(1).adding(Proximal(0.5))),
    "adam, readjusted at the end": by_adam(readjust()),
    "adam, grown at random": by_adam(readjust(2, rule="random")),
    "adam, grown as published": by_adam(
        readjust(1, grow_from="any", images="last-batch", weights="unpruned"),
    ),
    "adam, squared gradients, readjusted in between": by_adam(readjust(1).adding(Report("squared-gradient"))),
    "adam, readjusted, then reported": by_adam(readjust(1).adding(Report("gradient"))),
    "adamw": by_adam(ClientPlan(LOCAL), optimizer="adamw", l2=0.5),
    "adamw, readjusted in between with a proximal term": by_adam(
        readjust(1).adding(Proximal(0.5)), optimizer="adamw", l2=0.5
    ),
    "adam, kept head": by_adam(ClientPlan(LOCAL, keep=frozenset({"9.weight", "9.bias"}))),
}


def one_task(module: nn.Module, data: Dataset, plan: ClientPlan, *, sparse: bool) -> ClientTask:
    params = initial_model(module).params
    draws = torch.Generator().manual_seed(1)
    masks: dict[str, Tensor] = {}
    for name in MASKED if sparse else ():
        mask = torch.zeros(params[name].numel(), dtype=torch.bool)
        mask[torch.randperm(len(mask), generator=draws)[: BUDGETS[name]]] = True
        masks[name] = mask.view(params[name].shape)
    held = masked(params, masks)
    sent = Broadcast(4, {name: value for name, value in held.items() if name not in plan.keep}, masks=masks)
    examples = Examples(data.train_images[:33], data.train_labels[:33])
    return ClientTask(2, 11, plan, Message().read_as(Reference(sent)), examples, initial=params)


@dataclass(frozen=True)
class Outcome:
    """What comes of a task: the update, what the client keeps, and its loss."""

    update: Update
    state: ClientState
    loss: float


def outcome(client: Client) -> Outcome:
    return Outcome(*finished(client), client.loss)


def assert_outcomes_agree(found: Outcome, expected: Outcome) -> None:
    assert_updates_agree(found.update, expected.update)
    assert_tensors_near(found.state.tensors, expected.state.tensors, WEIGHTS)
    assert found.loss == pytest.approx(expected.loss, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "sparse"),
    [
        (name, sparse)
        for name, plan in WORKS.items()
        for sparse in (False, True)
        if sparse or (plan.step(Readjust) is None and plan.step(InitialPruning) is None)
    ],
)
def test_every_kind_of_work_is_done_as_the_reference_does_it(
    name: str, sparse: bool, module: nn.Module, digits: Dataset, native_client: TrainClient
) -> None:
    plan = WORKS[name]
    task = one_task(module, digits, plan, sparse=sparse)
    expected = outcome(torch_client.train_client(copy.deepcopy(module), task))
    assert_outcomes_agree(outcome(native_client(module, task)), expected)
    assert (expected.update.masks is not None) == (plan.step(Readjust) is not None)


# Other objectives than cross-entropy.


DRAWN = torch.randn(33, 4, generator=torch.Generator().manual_seed(8))
TARGETS = {
    "squared-error": DRAWN,
    "squared-error, float64": DRAWN.double(),
    "squared-error, one number": DRAWN[:, 0],
    "squared-error, counts": (3 * DRAWN[:, 1]).long(),
    "binary": (DRAWN[:, 2] > 0).long(),
    "binary, a column": (DRAWN[:, 2:3] > 0).float(),
    "multi-label": (DRAWN > 0).float(),
    "multi-label, int64": (DRAWN > 0).long(),
}
"""For each objective some targets."""


@pytest.mark.parametrize(
    ("work", "sparse"),
    [
        ("plain", False),
        ("plain", True),
        ("adam", False),
        ("adam", True),
        ("readjusted in between with a proximal term", True),
        ("adam, squared gradients, readjusted in between", True),
    ],
)
@pytest.mark.parametrize("kind", TARGETS)
def test_every_objective_is_minimised_as_the_reference_does_it(
    kind: str, work: str, sparse: bool, module: nn.Module, digits: Dataset, native_client: TrainClient
) -> None:
    plan, targets = WORKS[work], TARGETS[kind]
    if targets.shape[1:].numel() == 1:
        assert isinstance(module, nn.Sequential)
        module[9] = nn.Linear(12, 1)
    plan = replace(plan, local=replace(plan.local, objective=kind.partition(",")[0]))
    task = one_task(module, digits, plan, sparse=sparse)
    task = task.with_data(Examples(digits.train_images[:33], targets))
    expected = outcome(torch_client.train_client(copy.deepcopy(module), task))
    assert_outcomes_agree(outcome(native_client(module, task)), expected)


@pytest.mark.parametrize("frozen", ["0.weight", "3.weight", "7.bias", "9.weight"])
@pytest.mark.parametrize("plan", ["proximal", "readjusted in between", "two reports", "adam, readjusted in between"])
def test_frozen_parameters_stay_as_they_are(
    frozen: str, plan: str, module: nn.Module, digits: Dataset, native_client: TrainClient
) -> None:
    module.get_parameter(frozen).requires_grad_(False)
    task = one_task(module, digits, WORKS[plan], sparse=True)
    expected = outcome(torch_client.train_client(copy.deepcopy(module), task))
    found, sent = outcome(native_client(module, task)), task.sent.broadcast
    assert_outcomes_agree(found, expected)
    if found.update.masks is None:
        packed = sent.params[frozen]
        packed = packed[sent.masks[frozen]] if frozen in sent.masks else packed
        assert torch.equal(found.update.params[frozen], packed)
    for tensors in found.update.extra.values():
        assert not tensors[frozen].any()


@pytest.mark.parametrize("plan", ["readjusted in between", "kept head and reports"])
def test_the_memory_layout_of_weights_and_images_does_not_matter(
    plan: str, module: nn.Module, digits: Dataset, native_client: TrainClient
) -> None:
    task = one_task(module, digits, WORKS[plan], sparse=True)
    sent = task.sent.broadcast

    def turned(tensors: Tensors) -> dict[str, Tensor]:
        """The same numbers, in memory with the first dimension innermost."""
        return {name: value.transpose(0, -1).contiguous().transpose(0, -1) for name, value in tensors.items()}

    again = Reference(replace(sent, params=turned(sent.params), masks=turned(sent.masks)))
    other = outcome(native_client(module, replace(task, initial=turned(task.initial)).read_as(again)))
    found = outcome(native_client(module, task))
    assert_masks_same(other.update.masks, found.update.masks)
    for tensors, same in ((other.update.params, found.update.params), (other.state.tensors, found.state.tensors)):
        assert all(torch.equal(value, same[name]) for name, value in tensors.items())


# The engine as a whole.


def mixed_tasks(module: nn.Module, data: Dataset) -> list[ClientTask]:
    """Of several methods at once, as runs in lockstep have them."""
    methods = ("fedavgm", "feddst", "lotteryfl", "lg-fedavg", "snip")
    runs = [config(method=method, readjust__every=1, **OWN.get(method, {})) for method in methods]
    return [task for options in runs for task in Run(options, federate(options.data, 0, data), module).open_round()]


def assert_same_bits(one: Sequence[ClientResult], two: Sequence[ClientResult]) -> None:
    for result, other in zip(one, two, strict=True):
        assert result.payload == other.payload
        assert result.loss == other.loss
        kept = other.state.tensors
        assert result.state.tensors.keys() == kept.keys()
        assert all(torch.equal(value, kept[name]) for name, value in result.state.tensors.items())


def test_any_number_of_workers_gives_the_same_bits(module: nn.Module, digits: Dataset) -> None:
    tasks = mixed_tasks(module, digits)
    params = initial_model(module).params
    tests = [EvalTask(params), EvalTask(params, images=torch.arange(0, 800, 3)), EvalTask(masked(params, {}))]
    with closing(native_engine(module, digits, 1)) as alone, closing(native_engine(module, digits, 3)) as several:
        first, second = results_of(alone, tasks), results_of(several, tasks)
        assert len(first) == len(tasks) >= 13
        assert_same_bits(first, second)
        assert_same_bits(first, results_of(several, tasks))  # and nothing is remembered
        for one, two in zip(alone.evaluate(tests), several.evaluate(tests), strict=True):
            assert torch.equal(right_of(one), right_of(two))
            assert one.loss == two.loss


class Pausing:
    """Examples that are drawn as they are read, with a pause in which another thread may have its turn."""

    def __len__(self) -> int:
        return 80

    def __getitem__(self, item: int) -> tuple[Tensor, int]:
        first = torch.rand(1, 8, 8)
        time.sleep(0.0005)
        return first - torch.rand(1, 8, 8), item % 4


def test_training_in_pytorch_does_not_disturb_what_others_draw(module: nn.Module) -> None:
    """A client that PyTorch trains seeds the process's generator, from which another thread's data may be drawn."""
    data = Dataset.of(Pausing(), Pausing())
    options = config(data__clients=4, data__images_per_class=5, cohort__size=4, local__clip=1.0)
    tasks = Run(options, federate(options.data, 0, data), module).open_round()
    with closing(native_engine(module, data, 1)) as alone, closing(native_engine(module, data, 4)) as several:
        assert_same_bits(results_of(alone, tasks), results_of(several, tasks))


def test_what_an_engine_is_given_stays_as_it_was(module: nn.Module, digits: Dataset) -> None:
    tasks = [task.with_data(task.data.load()) for task in mixed_tasks(module, digits)]
    params = initial_model(module).params

    def tensors_of(task: ClientTask) -> list[Tensor]:
        one = task.examples
        return [*one.pair, *task.state.tensors.values(), *task.initial.values(), *params.values()]

    before = [copy.deepcopy(tensors_of(task)) for task in tasks]
    with closing(native_engine(module, digits, 2)) as engine:
        results_of(engine, tasks)
        engine.evaluate([EvalTask(params)])
    for was, task in zip(before, tasks, strict=True):
        assert all(torch.equal(value, now) for value, now in zip(was, tensors_of(task), strict=True))


def test_one_client_that_diverges_is_an_error_that_the_engine_survives(module: nn.Module, digits: Dataset) -> None:
    tasks = mixed_tasks(module, digits)
    plan = replace(tasks[1].plan, local=replace(tasks[1].plan.local, lr=1e30))
    with closing(native_engine(module, digits, 2)) as engine:
        expected = results_of(engine, tasks)
        with pytest.raises(TrainingError, match=f"client {tasks[1].client} diverged in round 1"):
            results_of(engine, [tasks[0], replace(tasks[1], plan=plan), *tasks[2:]])
        with pytest.raises(WireError, match="refused"):
            engine.run(tasks, Refusing())
        assert_same_bits(results_of(engine, tasks), expected)


@pytest.mark.parametrize("density", [1.0, 0.3, 0.0])
def test_models_tests_have_the_references_results(isa: str, density: float, module: nn.Module, digits: Dataset) -> None:
    draws = torch.Generator().manual_seed(2)
    params = {name: value * 3 for name, value in initial_model(module).params.items()}
    masks = {name: torch.rand(params[name].shape, generator=draws) < density for name in MASKED}
    held = masked(params, masks)
    some = torch.randperm(800, generator=draws)[:137]
    tests = [EvalTask(held), EvalTask(held, images=some), EvalTask(held, images=torch.tensor([799, 0, 799]))]
    with closing(native_engine(module, digits, 2)) as engine:
        found, expected = engine.evaluate(tests), reference_engine(module, digits).evaluate(tests)
    assert [len(right_of(one)) for one in found] == [800, 137, 3]
    module.load_state_dict(dict(held))
    with torch.no_grad():
        scores = module(digits.inputs(digits.test_images)).sort(dim=1).values
    close = scores[:, -1] - scores[:, -2] < 1e-4
    assert int(close.sum()) < 80 or density == 0.0
    for one, right, test in zip(found, expected, tests, strict=True):
        undecided = close if test.images is None else close[test.images]
        assert torch.equal(right_of(one)[~undecided], right_of(right)[~undecided])
        assert one.loss == pytest.approx(right.loss, abs=1e-5)


def test_many_tests_of_many_models_come_back_in_order(module: nn.Module, digits: Dataset) -> None:
    params = initial_model(module).params
    tests = [EvalTask({name: value * scale for name, value in params.items()}) for scale in (1, 2, 3, 4, 5)]
    with closing(native_engine(module, digits, 3)) as engine:
        together = engine.evaluate(tests)
        alone = [engine.evaluate([test])[0] for test in tests]
        assert engine.evaluate([]) == []
    assert len({one.loss for one in together}) == 5
    for one, two in zip(together, alone, strict=True):
        assert one.loss == two.loss
        assert torch.equal(right_of(one), right_of(two))


# Whole runs.


class StopAfter(Silent):
    """Ends a run early, as Ctrl-C does."""

    def __init__(self, round: int) -> None:
        self.last, self.seen = round, 0

    def row(self, run: Run, row: Row) -> None:
        self.seen = row.round

    def stop(self) -> bool:
        return self.seen >= self.last


def untimed(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, seconds=0.0) for row in rows]


@pytest.mark.parametrize(
    "changes",
    [{"method": "feddst", "proximal__mu": 1.0}, {"method": "lotteryfl", **OWN["lotteryfl"]}],
    ids=["feddst", "lotteryfl"],
)
def test_a_resumed_run_is_bit_for_bit_the_unbroken_one(
    changes: dict[str, Any], tmp_path: Path, digits: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    options = config(**changes, cohort__stragglers=0.5)
    whole = run(options, model=network, data=digits, out=tmp_path / "whole", watcher=Silent())
    run(options, model=network, data=digits, out=tmp_path / "part", watcher=StopAfter(2))
    rest = run(options, model=network, data=digits, out=tmp_path / "part", resume=True, watcher=Silent())
    assert untimed(whole.rows) == untimed(rest.rows)
    files = [RunDirectory(tmp_path / name) for name in ("whole", "part")]
    assert files[0].checkpoint.read_bytes() == files[1].checkpoint.read_bytes()
    assert "PyTorch" not in caplog.text


@pytest.mark.parametrize("method", ["fedavgm", "feddst"])
def test_a_run_learns_what_it_learns_with_the_reference(method: str, digits: Dataset) -> None:
    """After 15 rounds the two accuracies are within 2 points: 16 of 800 test images."""
    longer = {"rounds": 15, "eval_every": 15, "data__classes_per_client": 4, "data__images_per_class": 6}
    found, expected = (
        run(
            config(method=method, engine__kind=kind, engine__workers=1, readjust__until=15, **longer),
            model=network,
            data=digits,
            watcher=Silent(),
        ).rows[-1]
        for kind in ("native", "reference")
    )
    assert found.accuracy is not None
    assert expected.accuracy is not None
    assert expected.accuracy > 0.6  # four classes: chance is 0.25
    assert found.accuracy == pytest.approx(expected.accuracy, abs=0.02)
    assert found.density == expected.density


# Which engine a run gets.


def test_a_chain_on_a_cpu_gets_the_native_engine_without_a_word(
    module: nn.Module, digits: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(make_engine(EngineConfig(), module, digits)) as engine:
        assert isinstance(engine, NativeEngine)
    with closing(make_engine(EngineConfig(kind="reference", workers=1), module, digits)) as engine:
        assert isinstance(engine, ReferenceEngine)
    assert not caplog.records


def test_what_only_the_kernels_refuse_gets_the_reference_engine_and_one_warning(
    digits: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(make_engine(EngineConfig(workers=1), nn.Sequential(nn.Flatten(), nn.ReLU()), digits)) as engine:
        assert isinstance(engine, ReferenceEngine)
    assert [record.getMessage() for record in caplog.records] == [
        "training with PyTorch: the kernels refuse this network: no layer has weights. "
        "This is slower, and the result is of the same kind"
    ]


def test_the_instruction_set_can_be_forced(isa: str, module: nn.Module, digits: Dataset) -> None:
    with closing(make_engine(EngineConfig(), module, digits)) as engine:
        assert isinstance(engine, NativeEngine)
        assert engine._isa == isa


@pytest.mark.parametrize("name", ["mmx", "AVX2", "avx2 "])
def test_an_unknown_instruction_set_is_refused(
    name: str, module: nn.Module, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ISA_VARIABLE, name)
    with pytest.raises(OptionError, match=f"FEDDST_ISA must be .*baseline.* got '{name}'"):
        make_engine(EngineConfig(), module, digits)
    monkeypatch.setenv(ISA_VARIABLE, "")
    with closing(make_engine(EngineConfig(), module, digits)) as engine:
        assert isinstance(engine, NativeEngine)
        assert engine._isa == ISAS[0]
