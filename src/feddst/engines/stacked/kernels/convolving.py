"""The kernels of a convolution with stride 1, as matrix products over groups of neighbouring pixels.

A group of `tall` × `broad` neighbours is computed at once: each result of the group is its own row of the left matrix,
which holds the weights shifted to where that neighbour sees them, zero elsewhere. A pixel of the source, loaded once,
then serves the whole group, and few channels still fill the matrix unit.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def expand(
    theta,
    start,
    row,
    shifted,
    outputs: tl.constexpr,
    inputs: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    tall: tl.constexpr,
    broad: tl.constexpr,
    turned: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    lines: tl.constexpr,
    block: tl.constexpr,
):
    """Write the left matrix, [rows, columns]: row (output, neighbour), column (input, row, column of the window).

    turned: for the backward pass, from a convolution's outputs to its inputs; `outputs` and `inputs` are still this
    matrix's.
    """
    deep: tl.constexpr = high + tall - 1
    spread: tl.constexpr = wide + broad - 1
    model = tl.program_id(1).to(tl.int64)
    line = tl.program_id(2) * lines + tl.arange(0, lines)
    tap = tl.program_id(0) * block + tl.arange(0, block)
    output = line // (tall * broad)
    source = tap // (deep * spread)
    y = (tap // spread % deep)[None, :] - (line // broad % tall)[:, None]
    x = (tap % spread)[None, :] - (line % broad)[:, None]
    if turned:
        place = (source * (outputs * high * wide))[None, :] + (output * (high * wide) + high * wide - 1)[:, None]
        place -= y * wide + x
    else:
        place = (output * (inputs * high * wide))[:, None] + (source * (high * wide))[None, :] + y * wide + x
    known = (output < outputs)[:, None] & (source < inputs)[None, :] & (y >= 0) & (y < high) & (x >= 0) & (x < wide)
    value = tl.load(theta + model * row + start + place, mask=known, other=0.0)
    to = shifted + model * (rows * columns) + line[:, None] * columns + tap[None, :]
    tl.store(to, value, mask=(tap < columns)[None, :] & (line < rows)[:, None])


@triton.jit
def convolve(
    source,
    shifted,
    theta,
    bias,
    row,
    result,
    forward,
    inputs: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    outputs: tl.constexpr,
    result_height: tl.constexpr,
    result_width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    above: tl.constexpr,
    left: tl.constexpr,
    tall: tl.constexpr,
    broad: tl.constexpr,
    images: tl.constexpr,
    clipped: tl.constexpr,
    biased: tl.constexpr,
    relu: tl.constexpr,
    alive: tl.constexpr,
    precision: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
    depth: tl.constexpr,
):
    """Result [outputs, pixels, images] of source [inputs, height, width, images], which has zeros above and left of it.

    clipped: memory outside the source may not be read; otherwise it may, and is zero where it matters.
    alive: the result is zero where `forward`, of its shape, is not positive.
    """
    deep: tl.constexpr = high + tall - 1
    spread: tl.constexpr = wide + broad - 1
    groups: tl.constexpr = (result_width + broad - 1) // broad
    total: tl.constexpr = (result_height + tall - 1) // tall * groups * images
    taps: tl.constexpr = inputs * deep * spread
    model = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * block + tl.arange(0, block)
    y = at // images // groups * tall
    x = at // images % groups * broad
    pixel = (y * width + x) * images + at % images
    source += model * (inputs * height * width * images)
    shifted += model * (rows * columns)
    line = tl.arange(0, rows)
    sums = tl.zeros((rows, block), dtype=tl.float32)
    for first in range(0, columns, depth):
        tap = first + tl.arange(0, depth)
        tap_row = tap // spread
        plane = tap_row // deep
        tap_x = tap - tap_row * spread - left
        tap_y = tap_row - plane * deep - above
        offset = ((plane * height + tap_y) * width + tap_x) * images
        if clipped or total % block > 0:
            inside = (at < total)[None, :] & (tap < taps)[:, None]
            if clipped:
                down = y[None, :] + tap_y[:, None]
                right = x[None, :] + tap_x[:, None]
                inside = inside & (down >= 0) & (down < height) & (right >= 0) & (right < width)
            values = tl.load(source + (offset[:, None] + pixel[None, :]), mask=inside, other=0.0)
        else:
            offset = tl.where(tap < taps, offset, 0)
            values = tl.load(source + (offset[:, None] + pixel[None, :]))
        weights = tl.load(shifted + line[:, None] * columns + tap[None, :])
        sums = tl.dot(weights, values, sums, input_precision=precision)
    output = line // (tall * broad)
    down = y[None, :] + (line // broad % tall)[:, None]
    right = x[None, :] + (line % broad)[:, None]
    known = (output < outputs)[:, None] & (at < total)[None, :] & (down < result_height) & (right < result_width)
    if biased:
        sums += tl.load(theta + model * row + bias + output, mask=output < outputs, other=0.0)[:, None]
    if relu:
        sums = tl.maximum(sums, 0.0, propagate_nan=tl.PropagateNan.ALL)
    to = (output[:, None] * result_height + down) * result_width + right
    to = model * (outputs * result_height * result_width * images) + to * images + (at % images)[None, :]
    if alive:
        sums = tl.where(tl.load(forward + to, mask=known, other=0.0) > 0, sums, 0.0)
    tl.store(result + to, sums, mask=known)


@triton.jit
def weigh(
    source,
    slope,
    part,
    models,
    inputs: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    outputs: tl.constexpr,
    slope_height: tl.constexpr,
    slope_width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    tall: tl.constexpr,
    broad: tl.constexpr,
    images: tl.constexpr,
    precision: tl.constexpr,
    pieces: tl.constexpr,
    steps: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
    depth: tl.constexpr,
):
    """A share of the slopes in the shifted weights, [rows, columns]; column `taps` has the slopes in the biases.

    For it, a plane of ones follows the last model's source. The slopes lie in planes of slope_height × slope_width,
    zero outside of the result.
    """
    deep: tl.constexpr = high + tall - 1
    spread: tl.constexpr = wide + broad - 1
    result_height: tl.constexpr = height - high + 1
    result_width: tl.constexpr = width - wide + 1
    groups: tl.constexpr = (result_width + broad - 1) // broad
    total: tl.constexpr = (result_height + tall - 1) // tall * groups * images
    taps: tl.constexpr = inputs * deep * spread
    size: tl.constexpr = inputs * height * width * images
    ragged: tl.constexpr = result_width % broad > 0 or result_height % tall > 0 or pieces * steps * depth != total
    model = tl.program_id(1).to(tl.int64)
    piece = tl.program_id(2)
    line = tl.arange(0, rows)
    output = line // (tall * broad)
    line_y = line // broad % tall
    line_x = line % broad
    line_at = ((output * slope_height + line_y) * slope_width + line_x) * images
    line_at = tl.where(output < outputs, line_at, 0)
    tap = tl.program_id(0) * block + tl.arange(0, block)
    tap_y = tap // spread % deep
    tap_x = tap % spread
    tap_at = ((tap // (deep * spread) * height + tap_y) * width + tap_x) * images
    tap_at = tl.where(tap < taps, tap_at, (models - tl.program_id(1)) * size)
    source += model * size
    slope += model * (outputs * slope_height * slope_width * images)
    sums = tl.zeros((rows, block), dtype=tl.float32)
    for step in range(steps):
        at = (piece * steps + step) * depth + tl.arange(0, depth)
        pixel = at // images
        y = pixel // groups * tall
        x = pixel % groups * broad
        image = at % images
        from_slope = slope + (line_at[:, None] + ((y * slope_width + x) * images + image)[None, :])
        from_source = source + (((y * width + x) * images + image)[:, None] + tap_at[None, :])
        if ragged:
            inside = (x[None, :] + line_x[:, None] < result_width) & (y[None, :] + line_y[:, None] < result_height)
            slopes = tl.load(from_slope, mask=inside & (at < total)[None, :], other=0.0)
            inside = (x[:, None] + tap_x[None, :] < width) & (y[:, None] + tap_y[None, :] < height)
            inside = (inside | (tap == taps)[None, :]) & (at < total)[:, None]
            values = tl.load(from_source, mask=inside, other=0.0)
        else:
            slopes = tl.load(from_slope)
            values = tl.load(from_source)
        sums = tl.dot(slopes, values, sums, input_precision=precision)
    to = (piece * models + model) * (rows * columns) + line[:, None] * columns + tap[None, :]
    tl.store(part + to, sums)


@triton.jit
def fold(
    part,
    into,
    weight,
    bias,
    row,
    models,
    pieces: tl.constexpr,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    tall: tl.constexpr,
    broad: tl.constexpr,
    biased: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
):
    """The slopes in weights and biases: all shares and all neighbours summed."""
    deep: tl.constexpr = high + tall - 1
    spread: tl.constexpr = wide + broad - 1
    each: tl.constexpr = inputs * high * wide
    model = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * block + tl.arange(0, block)
    is_weight = at < outputs * each
    is_bias = (at >= outputs * each) & (at < outputs * each + outputs) & biased
    output = tl.where(is_weight, at // each, at - outputs * each)
    tap = (at % each // (high * wide) * deep + at // wide % high) * spread + at % wide
    tap = tl.where(is_weight, tap, inputs * deep * spread)
    moves = tl.where(is_weight, 1, 0)
    start = part + output * (tall * broad * columns) + tap
    known = is_weight | is_bias
    sums = tl.zeros((block,), dtype=tl.float32)
    for piece in range(pieces):
        from_part = start + (piece * models + model) * (rows * columns)
        for neighbour in tl.static_range(0, tall * broad):
            shift = neighbour // broad * spread + neighbour % broad
            sums += tl.load(from_part + neighbour * columns + moves * shift, mask=known, other=0.0)
    to = tl.where(is_weight, weight + at, bias + at - outputs * each)
    tl.store(into + model * row + to, sums, mask=known)
