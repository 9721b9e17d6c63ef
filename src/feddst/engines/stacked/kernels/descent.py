"""One step of stochastic gradient descent for all models."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from feddst.engines.stacked.kernels.batch import ceiling

_BLOCK = 1024


@dataclass(frozen=True)
class Descent:
    """Turns gradients into a step, for all rows [M, width].

    step = (g + l2 · θ + mu · (θ − received)) · mask; v = momentum · v + step; θ = θ − lr · v. masks: uint8, 0 or 1;
    rows whose `awake` (uint8 [M]) is 0 stay as they are.
    """

    velocity: Tensor
    masks: Tensor
    awake: Tensor
    lr: float
    momentum: float
    l2: float
    mu: float = 0.0
    received: Tensor | None = None

    @property
    def near(self) -> bool:
        """Whether weights are pulled to those received."""
        return self.received is not None and self.mu != 0

    @property
    def arguments(self) -> tuple[Tensor | float, ...]:
        """A kernel's arguments for `update`."""
        received = self.velocity if self.received is None else self.received
        return self.velocity, self.masks, self.awake, received, self.lr, self.momentum, self.l2, self.mu

    def __call__(self, theta: Tensor, gradient: Tensor, start: int = 0, stop: int | None = None) -> None:
        """Step in place, only from column `start` up to `stop`."""
        models, row = theta.shape
        stop = row if stop is None else stop
        if stop > start:
            grid = (ceiling(stop - start, _BLOCK), models)
            _descend[grid](theta, gradient, start, stop, row, *self.arguments, self.near, _BLOCK, num_warps=8)


@triton.jit
def update(theta, velocity, masks, received, at, known, slope, lr, momentum, l2, mu, near: tl.constexpr):
    """The step of the weights at some places of a model's row, from the loss's slopes in them; masks: those there."""
    mask = tl.load(masks, mask=known, other=0).to(tl.float32)
    weight = tl.load(theta + at, mask=known, other=0.0)
    speed = tl.load(velocity + at, mask=known, other=0.0)
    step = slope + l2 * weight
    if near:
        step += mu * (weight - tl.load(received + at, mask=known, other=0.0))
    speed = momentum * speed + step * mask
    tl.store(velocity + at, speed, mask=known)
    tl.store(theta + at, weight - lr * speed, mask=known)


@triton.jit
def _descend(
    theta,
    gradient,
    start,
    stop,
    row,
    velocity,
    masks,
    awake,
    received,
    lr,
    momentum,
    l2,
    mu,
    near: tl.constexpr,
    block: tl.constexpr,
):
    model = tl.program_id(1).to(tl.int64)
    if tl.load(awake + model) != 0:
        first = model * row
        at = start + tl.program_id(0) * block + tl.arange(0, block)
        known = at < stop
        slope = tl.load(gradient + first + at, mask=known, other=0.0)
        update(
            theta + first,
            velocity + first,
            masks + first + at,
            received + first,
            at,
            known,
            slope,
            lr,
            momentum,
            l2,
            mu,
            near,
        )
