"""Chains of layers that the kernels know: on a GPU every step is one CUDA graph."""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from feddst.core import Examples, LocalTraining, objective_of
from feddst.core.minibatches import Indices
from feddst.core.plan import USUAL
from feddst.engines.base import EvalTask
from feddst.engines.native.chain import Chain
from feddst.engines.stacked.chain import ChainGradients, Descent
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.known import why_without_kernels
from feddst.engines.stacked.lockstep import Lockstep
from feddst.engines.stacked.model_stack import ModelStack, Trainer

EIGHT = 8
"""Images come in multiples of this; the padding has no share in the loss."""

CHUNK = 64
"""Images of a client in one pass where a gradient is averaged over many."""

EXAM_CHUNK = 512
"""Test images of a model in one pass."""

STACKS = 3
"""Different numbers of models for which memory is kept."""

_CAPTURING = threading.Lock()


@dataclass(frozen=True)
class Recipe:
    """The constants of a graph: how many models of a stack step, on how many images at most, and how."""

    models: int
    images: int
    lr: float
    momentum: float
    l2: float
    mu: float


@dataclass
class Step:
    """A repeatable step on the contents of its tensors. Sizes are as for `ChainGradients`."""

    index: Tensor
    share: Tensor
    awake: Tensor
    losses: Tensor
    take: Callable[[], None]


class GraphTrainer:
    """Trains stacks by kernels, and by `fallback` what they cannot do; `frozen` parameters have no gradient.

    Raises `UnsupportedModelError` at the start.
    """

    def __init__(
        self,
        chain: Chain,
        flat: Flat,
        images: Examples,
        *,
        exact: bool,
        fallback: Trainer,
        frozen: Collection[str] = (),
    ) -> None:
        self._frozen = frozen
        self._chain = chain
        self._flat = flat
        self._given = images.pair
        self._exact = exact
        self._fallback = fallback
        self._device = images.device
        self._stacks: dict[int, ModelStack] = {}
        self._gradients: dict[tuple[int, int], ChainGradients] = {}
        self._steps: dict[tuple[int, Recipe], Step] = {}
        self._slopes: dict[int, Tensor] = {}
        self._kernels(1, EIGHT)

    def stack(self, models: int) -> ModelStack:
        if models not in self._stacks:
            if len(self._stacks) == STACKS:
                self._forget()
            self._stacks[models] = ModelStack.empty(models, self._flat, self._device)
            self._stacks[models].forget(["velocity"])
            self._slopes[models] = torch.zeros(models, self._flat.width, device=self._device)
        return self._stacks[models]

    def _forget(self) -> None:
        """Release all memory, for example if ended runs had other numbers of models."""
        for kept in (self._steps, self._gradients, self._slopes, self._stacks):
            kept.clear()

    def epochs(self, stack: ModelStack, steps: Lockstep, local: LocalTraining, mu: float) -> Tensor:
        if why_without_kernels(local):
            return self._fallback.epochs(stack, steps, local, mu)
        widest = _eights(steps.index.shape[2])
        index = torch.from_numpy(np.pad(steps.index, ((0, 0), (0, 0), (0, widest - steps.index.shape[2]))))
        index, lengths = index.to(self._device), torch.from_numpy(steps.lengths).to(self._device)
        share = _shares(lengths, widest)
        awake = (lengths > 0).to(torch.uint8)
        losses = torch.zeros(steps.lengths.shape, device=self._device)
        for step, counts in enumerate(steps.lengths):
            models, images = _enough(counts, len(stack.theta)), _eights(int(counts.max()))
            recipe = Recipe(models, images, local.lr, local.momentum, local.l2, mu)
            one = self._step(stack, recipe)
            one.index.copy_(index[step, :models, :images])
            one.share.copy_(share[step, :models, :images])
            one.awake.copy_(awake[step, :models])
            one.take()
            losses[step, :models].copy_(one.losses)
        return losses

    def mean_gradient(
        self, stack: ModelStack, chosen: Sequence[Indices], local: LocalTraining, temperature: float = 1.0
    ) -> Tensor:
        if temperature != 1.0 or objective_of(local) != objective_of(USUAL):
            return self._fallback.mean_gradient(stack, chosen, local, temperature)
        counts = np.array([len(images) for images in chosen])
        index = np.zeros((len(chosen), _eights(int(counts.max()))), dtype=np.int64)
        for row, images in enumerate(chosen):
            index[row, : len(images)] = images
        where = torch.from_numpy(index).to(self._device)
        share = _shares(torch.from_numpy(counts).to(self._device), index.shape[1])
        total, part = torch.zeros_like(stack.theta), torch.zeros_like(stack.theta)
        losses = torch.empty(len(chosen), device=self._device)
        for first in range(0, index.shape[1], CHUNK):
            some = slice(first, min(first + CHUNK, index.shape[1]))
            kernels = self._kernels(len(chosen), some.stop - some.start)
            there = where[:, some].contiguous(), share[:, some].contiguous()
            kernels(stack.theta, part, *self._given, *there, losses)
            total += part
        for name in self._frozen:
            self._flat.view(total, name).zero_()
        return total

    def scores(self, models: Sequence[EvalTask], inputs: Tensor, images: Tensor) -> Tensor:
        """See `Scoring`."""
        theta = torch.zeros(len(models), self._flat.width, device=self._device)
        for row, task in zip(theta, models, strict=True):
            self._flat.fill(row, task.params)
        found: list[Tensor] = []
        for some in torch.split(images, EXAM_CHUNK):
            index = F.pad(some, (0, _eights(len(some)) - len(some))).expand(len(models), -1).contiguous()
            scores = self._kernels(*index.shape).forward(theta, inputs, index)
            found.append(scores[:, :, : len(some)].transpose(1, 2).clone())
        return torch.cat(found, dim=1)

    def _kernels(self, models: int, images: int) -> ChainGradients:
        if (models, images) not in self._gradients:
            made = ChainGradients(self._chain, self._flat, models, images, self._device, exact=self._exact)
            self._gradients[models, images] = made
        return self._gradients[models, images]

    def _step(self, stack: ModelStack, recipe: Recipe) -> Step:
        key = len(stack.theta), recipe
        if key not in self._steps:
            with _CAPTURING:
                self._steps[key] = self._made(stack, recipe)
        return self._steps[key]

    def _made(self, stack: ModelStack, recipe: Recipe) -> Step:
        models, images = recipe.models, recipe.images
        index = torch.zeros(models, images, dtype=torch.int64, device=self._device)
        share = torch.zeros(models, images, device=self._device)
        awake = torch.zeros(models, dtype=torch.uint8, device=self._device)
        losses = torch.zeros(models, device=self._device)
        slopes = self._slopes[len(stack.theta)][:models]
        theta, velocity, masks, received = (
            rows[:models] for rows in (stack.theta, stack.slots["velocity"], stack.masks, stack.received)
        )
        pulled = received if recipe.mu else None
        descent = Descent(velocity, masks, awake, recipe.lr, recipe.momentum, recipe.l2, recipe.mu, pulled)
        given = *self._given, index, share, losses
        take = partial(self._kernels(models, images).step, theta, slopes, *given, descent)
        return Step(index, share, awake, losses, _graph(take) if self._device.type == "cuda" else take)


def _graph(take: Callable[[], None]) -> Callable[[], None]:
    """A step as a CUDA graph, recorded while no model is awake, so that nothing changes."""
    take()  # compiles the kernels
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
        take()
    return graph.replay


def _eights(images: int) -> int:
    return -(-images // EIGHT) * EIGHT


def _shares(lengths: Tensor, widest: int) -> Tensor:
    """1/n for each of a minibatch's n images, and 0 for its padding; lengths: int64 [...]."""
    there = torch.arange(widest, device=lengths.device) < lengths[..., None]
    return there / lengths.clamp(min=1)[..., None].float()


def _enough(lengths: Indices, models: int) -> int:
    """How many models, from the first, hold all that are awake: all of them, half of them, a quarter, and so on."""
    needed = int(np.flatnonzero(lengths)[-1]) + 1
    while models > EIGHT and needed <= -(-models // 2):
        models = -(-models // 2)
    return models
