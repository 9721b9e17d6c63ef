"""The kernels of a linear layer."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl

from feddst.engines.stacked.kernels.descent import update


@triton.jit
def multiply(
    theta,
    weight,
    bias,
    row,
    source,
    result,
    models,
    outputs: tl.constexpr,
    features: tl.constexpr,
    images: tl.constexpr,
    biased: tl.constexpr,
    relu: tl.constexpr,
    precision: tl.constexpr,
    piece: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
):
    """A piece of the features' share of the result, [pieces, M, outputs, images]."""
    model = tl.program_id(1).to(tl.int64)
    blocks: tl.constexpr = (images + columns - 1) // columns
    output = tl.program_id(0) // blocks * rows + tl.arange(0, rows)
    image = tl.program_id(0) % blocks * columns + tl.arange(0, columns)
    theta += model * row
    source += model * (features * images)
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    for first in range(0, piece, depth):
        feature = tl.program_id(2) * piece + first + tl.arange(0, depth)
        known = feature < features
        place = output[:, None] * features + feature[None, :]
        weights = tl.load(theta + weight + place, mask=(output < outputs)[:, None] & known[None, :], other=0.0)
        place = feature[:, None] * images + image[None, :]
        values = tl.load(source + place, mask=known[:, None] & (image < images)[None, :], other=0.0)
        sums = tl.dot(weights, values, sums, input_precision=precision)
    if biased:
        sums += tl.load(theta + bias + output, mask=output < outputs, other=0.0)[:, None]
    if relu:
        sums = tl.maximum(sums, 0.0, propagate_nan=tl.PropagateNan.ALL)
    result += (tl.program_id(2) * models + model) * (outputs * images)
    known = (output < outputs)[:, None] & (image < images)[None, :]
    tl.store(result + output[:, None] * images + image[None, :], sums, mask=known)


@triton.jit
def finish(
    part,
    theta,
    bias,
    row,
    result,
    models,
    pieces: tl.constexpr,
    outputs: tl.constexpr,
    images: tl.constexpr,
    biased: tl.constexpr,
    relu: tl.constexpr,
    block: tl.constexpr,
):
    """The result from its pieces."""
    total: tl.constexpr = outputs * images
    model = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * block + tl.arange(0, block)
    known = at < total
    sums = tl.zeros((block,), dtype=tl.float32)
    for piece in range(pieces):
        sums += tl.load(part + (piece * models + model) * total + at, mask=known, other=0.0)
    if biased:
        sums += tl.load(theta + model * row + bias + at // images, mask=known, other=0.0)
    if relu:
        sums = tl.maximum(sums, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(result + model * total + at, sums, mask=known)


@triton.jit
def multiply_back(
    theta,
    weight,
    bias,
    row,
    source,
    slope,
    into,
    back,
    velocity,
    masks,
    awake,
    received,
    lr,
    momentum,
    l2,
    mu,
    near: tl.constexpr,
    moving: tl.constexpr,
    outputs: tl.constexpr,
    features: tl.constexpr,
    images: tl.constexpr,
    biased: tl.constexpr,
    further: tl.constexpr,
    alive: tl.constexpr,
    precision: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
):
    """The slopes in the biases, in the weights and (further) in the source, for a block of the features.

    alive: those in the source are zero where it is not positive. moving: the weights make their step at once, which
    saves writing and reading the slopes in them; no other program reads this block's weights.
    """
    model = tl.program_id(1).to(tl.int64)
    feature = tl.program_id(0) * block + tl.arange(0, block)
    known = feature < features
    theta += model * row
    into += model * row
    source += model * (features * images)
    slope += model * (outputs * images)
    if further:
        back += model * (features * images)
        for first in range(0, images, columns):
            image = first + tl.arange(0, columns)
            sums = tl.zeros((block, columns), dtype=tl.float32)
            for top in range(0, outputs, rows):
                output = top + tl.arange(0, rows)
                inside = (output < outputs)[:, None] & (image < images)[None, :]
                slopes = tl.load(slope + output[:, None] * images + image[None, :], mask=inside, other=0.0)
                inside = (output < outputs)[:, None] & known[None, :]
                place = weight + output[:, None] * features + feature[None, :]
                weights = tl.load(theta + place, mask=inside, other=0.0)
                sums = tl.dot(tl.trans(weights), slopes, sums, input_precision=precision)
            place = feature[:, None] * images + image[None, :]
            inside = known[:, None] & (image < images)[None, :]
            if alive:
                sums = tl.where(tl.load(source + place, mask=inside, other=0.0) > 0, sums, 0.0)
            tl.store(back + place, sums, mask=inside)
    if moving:
        tl.debug_barrier()
    for top in range(0, outputs, rows):
        output = top + tl.arange(0, rows)
        sums = tl.zeros((rows, block), dtype=tl.float32)
        total = tl.zeros((rows,), dtype=tl.float32)
        for first in range(0, images, columns):
            image = first + tl.arange(0, columns)
            inside = (output < outputs)[:, None] & (image < images)[None, :]
            slopes = tl.load(slope + output[:, None] * images + image[None, :], mask=inside, other=0.0)
            inside = known[:, None] & (image < images)[None, :]
            values = tl.load(source + feature[:, None] * images + image[None, :], mask=inside, other=0.0)
            sums = tl.dot(slopes, tl.trans(values), sums, input_precision=precision)
            total += tl.sum(slopes, axis=1)
        place = weight + output[:, None] * features + feature[None, :]
        inside = (output < outputs)[:, None] & known[None, :]
        if moving:
            of_model = model * row
            update(
                theta,
                velocity + of_model,
                tl.max_contiguous(masks + of_model + place, [1, 4]),
                received + of_model,
                place,
                inside & (tl.load(awake + model + tl.zeros((rows,), dtype=tl.int32)) != 0)[:, None],
                sums,
                lr,
                momentum,
                l2,
                mu,
                near,
            )
        else:
            tl.store(into + place, sums, mask=inside)
        if biased:  # noqa: SIM102 - the first is known when the kernel is compiled
            if tl.program_id(0) == 0:
                tl.store(into + bias + output, total, mask=output < outputs)
