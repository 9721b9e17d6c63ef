"""Cross-entropy of the scores, and its slope."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl
from torch import Tensor

from feddst.engines.stacked.kernels.batch import Batch, power


def cross_entropy(
    batch: Batch,
    scores: Tensor,
    labels: Tensor,
    index: Tensor,
    share: Tensor,
    losses: Tensor,
    slope: Tensor,
    *,
    classes: int,
    softmax: bool,
    alive: bool,
) -> None:
    """Each model's mean loss, and its slope in the scores; softmax: the scores first pass through one more.

    alive: the scores are a ReLU's output, whose slope is included.
    """
    rows, columns = power(classes), power(batch.images)
    _cross_entropy[(batch.models,)](
        scores, labels, index, share, losses, slope, classes, batch.images, softmax, alive, rows, columns, num_warps=4
    )


@triton.jit
def _softmax(values, known):
    values = tl.where(known, values, float("-inf"))
    powers = tl.exp(values - tl.max(values, axis=0)[None, :])
    return powers / tl.sum(powers, axis=0)[None, :]


@triton.jit
def _cross_entropy(
    scores,
    labels,
    index,
    share,
    losses,
    slope,
    classes: tl.constexpr,
    images: tl.constexpr,
    softmax: tl.constexpr,
    alive: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    model = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, rows)
    image = tl.arange(0, columns)
    there = image < images
    known = (row < classes)[:, None] & there[None, :]
    at = model * classes * images + row[:, None] * images + image[None, :]
    given = tl.load(scores + at, mask=known, other=0.0)
    label = tl.load(labels + tl.load(index + model * images + image, mask=there, other=0), mask=there, other=0)
    weight = tl.load(share + model * images + image, mask=there, other=0.0)
    chosen = row[:, None] == label[None, :]
    inner = (row < classes)[:, None] & (image >= 0)[None, :]
    values = _softmax(given, inner) if softmax else given
    largest = tl.max(tl.where(inner, values, float("-inf")), axis=0)
    powers = tl.where(inner, tl.exp(values - largest[None, :]), 0.0)
    total = tl.sum(powers, axis=0)
    loss = tl.log(total) + largest - tl.sum(tl.where(chosen, values, 0.0), axis=0)
    tl.store(losses + model, tl.sum(tl.where(weight == 0, 0.0, loss * weight), axis=0))
    step = powers / total[None, :] - tl.where(chosen, 1.0, 0.0)
    if softmax:
        step = values * (step - tl.sum(values * step, axis=0)[None, :])
    step = tl.where((weight == 0)[None, :], 0.0, step * weight[None, :])
    if alive:
        step = tl.where(given > 0, step, 0.0)
    tl.store(slope + at, step, mask=known)
