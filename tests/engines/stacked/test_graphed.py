"""The kernels' trainer against `vmap`: the same steps, gradients and scores, whoever is awake."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from feddst.core import Examples, LocalTraining
from feddst.engines.base import EvalTask
from feddst.engines.native.chain import read_chain
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.lockstep import in_lockstep
from feddst.engines.stacked.model_stack import ModelStack, Trainer
from feddst.engines.stacked.vmapped import VmapTrainer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

if sys.platform != "linux":
    pytest.skip("Triton is made for Linux", allow_module_level=True)

from feddst.engines.stacked.graphed import GraphTrainer, _enough  # noqa: E402

LOCAL = LocalTraining(batch=8, lr=0.05)
MODELS = 10


@pytest.fixture(scope="module", autouse=True)
def stream() -> Iterator[None]:
    """A stream of the tests' own, as the engine has one: the default stream's work cannot become a CUDA graph."""
    with torch.cuda.stream(torch.cuda.Stream() if DEVICE.type == "cuda" else None):  # type: ignore[no-untyped-call]
        yield


@pytest.fixture(scope="module")
def trainers(stream: None) -> tuple[Flat, GraphTrainer, VmapTrainer]:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.MaxPool2d(3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)
    )
    chain = read_chain(module, (1, 6, 6))
    module.to(DEVICE)
    images = Examples(torch.randn(60, 1, 6, 6, device=DEVICE), torch.randint(0, 3, (60,), device=DEVICE))
    flat = Flat({name: tuple(value.shape) for name, value in module.named_parameters()})
    plain = VmapTrainer(module, flat, images)
    return flat, GraphTrainer(chain, flat, images, exact=True, fallback=plain), plain


def begun(trainer: Trainer, flat: Flat) -> ModelStack:
    stack = trainer.stack(MODELS)
    draws = torch.Generator().manual_seed(1)
    for name, view in flat.views(stack.masks).items():
        mask = torch.rand(view.shape, generator=draws) < 0.7 if name.endswith("weight") else torch.ones(view.shape)
        view.copy_(mask)
    for view in flat.views(stack.theta).values():
        view.copy_(torch.randn(view.shape, generator=draws) * 0.4)
    stack.theta.mul_(stack.masks)
    stack.forget(["velocity"])
    stack.received.copy_(stack.theta * 0.9)
    return stack


SEQUENCES = [
    np.random.default_rng(row).permuted(np.tile(np.arange(row, 12), (2 - row // 5, 1)), axis=1) for row in range(MODELS)
]
"""Models with 12, 11, … images, and the later half with one epoch only."""


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_steps_are_those_of_vmap_though_minibatches_are_filled_up(
    trainers: tuple[Flat, GraphTrainer, VmapTrainer], mu: float
) -> None:
    flat, ours, theirs = trainers
    steps = in_lockstep(SEQUENCES, LOCAL.batch)
    stacks = [begun(ours, flat), begun(theirs, flat)]
    losses = [ours.epochs(stacks[0], steps, LOCAL, mu), theirs.epochs(stacks[1], steps, LOCAL, mu)]
    there = torch.from_numpy(steps.lengths > 0)
    assert float((losses[0] - losses[1]).cpu()[there].abs().max()) < 1e-5
    assert float((stacks[0].theta - stacks[1].theta).abs().max()) < 1e-5
    assert float((stacks[0].slots["velocity"] - stacks[1].slots["velocity"]).abs().max()) < 1e-5


@pytest.mark.parametrize("temperature", [1.0, 7.0])
def test_mean_gradients_are_those_of_vmap(trainers: tuple[Flat, GraphTrainer, VmapTrainer], temperature: float) -> None:
    flat, ours, theirs = trainers
    chosen = [np.arange(1 + 8 * row) % 60 for row in range(MODELS)]  # up to 73: more than one pass
    found = ours.mean_gradient(begun(ours, flat), chosen, LOCAL, temperature)
    expected = theirs.mean_gradient(begun(theirs, flat), chosen, LOCAL, temperature)
    assert float((found - expected).abs().max()) < 1e-5


def test_frozen_parameters_have_no_gradient(trainers: tuple[Flat, GraphTrainer, VmapTrainer]) -> None:
    flat, ours, theirs = trainers
    frozen = GraphTrainer(ours._chain, flat, ours._images, exact=True, fallback=theirs, frozen=["0.weight"])
    found = flat.views(frozen.mean_gradient(begun(frozen, flat), [np.arange(8)] * MODELS, LOCAL))
    assert not found["0.weight"].any()
    assert all(value.any() for name, value in found.items() if name != "0.weight")


def test_memory_of_stacks_that_are_not_needed_any_more_is_let_go(
    trainers: tuple[Flat, GraphTrainer, VmapTrainer],
) -> None:
    flat, ours, theirs = trainers
    trainer = GraphTrainer(ours._chain, flat, ours._images, exact=True, fallback=theirs)
    first = trainer.stack(5)
    assert trainer.stack(5) is first
    for models in (4, 3, 2):
        trainer.stack(models)
    assert trainer.stack(5) is not first
    assert len(trainer._stacks) <= 3


def test_scores_are_the_modules(trainers: tuple[Flat, GraphTrainer, VmapTrainer]) -> None:
    flat, ours, theirs = trainers
    stack = begun(theirs, flat)
    tests = [
        EvalTask({name: value[row].clone() for name, value in flat.views(stack.theta).items()}) for row in range(3)
    ]
    inputs, images = torch.randn(20, 1, 6, 6, device=DEVICE), torch.arange(3, 16, device=DEVICE)
    scores = ours.scores(tests, inputs, images)
    assert scores.shape == (3, 13, 3)
    for test, found in zip(tests, scores, strict=True):
        expected = torch.func.functional_call(theirs._module, dict(test.params), (inputs[images],))
        assert float((found - expected).detach().abs().max()) < 1e-5


def test_only_as_many_models_step_as_hold_all_that_are_awake() -> None:
    awake = np.array([3, 0, 3, *[0] * 197])
    assert _enough(awake, 200) == 7
    assert _enough(np.ones(200, dtype=np.int64), 200) == 200
    assert _enough(np.array([1] * 100 + [0] * 100), 200) == 100
    assert _enough(np.array([1] * 101 + [0] * 99), 200) == 200


def test_a_recipe_is_recorded_once(trainers: tuple[Flat, GraphTrainer, VmapTrainer]) -> None:
    flat, ours, _ = trainers
    stack = begun(ours, flat)
    sequences = [np.arange(8)[None]] * MODELS
    for local in (LOCAL, LOCAL, replace(LOCAL, lr=0.1)):
        ours.epochs(stack, in_lockstep(sequences, 8), local, 0.0)
    recipes = [recipe for models, recipe in ours._steps if models == MODELS and recipe.mu == 0 and recipe.images == 8]
    assert len({(recipe.models, recipe.lr) for recipe in recipes}) == len(recipes)
    assert {recipe.lr for recipe in recipes} == {0.05, 0.1}
