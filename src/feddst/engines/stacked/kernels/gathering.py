"""Each model's images, from all images of all clients."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl
from torch import Tensor

from feddst.engines.stacked.kernels.batch import Batch, ceiling, power

_PIXELS = 128


def gather(batch: Batch, inputs: Tensor, index: Tensor, into: Tensor) -> None:
    """Write inputs[index] with the images innermost."""
    size = inputs[0].numel()
    images = min(64, power(batch.images))
    grid = (ceiling(size, _PIXELS) * ceiling(batch.images, images), batch.models)
    _gather[grid](inputs, index, into, size, batch.images, pixels=_PIXELS, block=images, num_warps=4)


@triton.jit
def _gather(inputs, index, into, size, images, pixels: tl.constexpr, block: tl.constexpr):
    model = tl.program_id(1).to(tl.int64)
    blocks = tl.cdiv(images, block)
    image = tl.program_id(0) % blocks * block + tl.arange(0, block)
    pixel = tl.program_id(0) // blocks * pixels + tl.arange(0, pixels)
    which = tl.load(index + model * images + image, mask=image < images, other=0)
    known = (image < images)[:, None] & (pixel < size)[None, :]
    values = tl.load(inputs + which[:, None] * size + pixel[None, :], mask=known, other=0.0)
    to = into + model * size * images + pixel[:, None] * images + image[None, :]
    tl.store(to, tl.trans(values), mask=tl.trans(known))
