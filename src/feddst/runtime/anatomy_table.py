"""A network's parameters as a table of words."""

from typing import TYPE_CHECKING

from feddst.runtime.wording import NOTHING, forward_pass, percent

if TYPE_CHECKING:
    from feddst.runtime.anatomy import Anatomy, Part

HEADING = ("parameter", "shape", "kept", "of", "density", "budget", "multiply-adds", "if dense", "sparse")
COUNTED = "two FLOPs for each multiply-add with a weight; biases, norms, pooling and activations are not counted"


def table(found: "Anatomy") -> list[tuple[str, ...]]:
    """The parameters as rows of words, the heading first and the total last."""
    share = percent(found.kept / found.size)
    counts = _counts(found.budget, found.sparse_multiply_adds, found.multiply_adds)
    total = ("total", "", f"{found.kept:,}", f"{found.size:,}", share, *counts, "")
    return [HEADING, *map(_row, found.parts), total]


def closing(found: "Anatomy") -> list[str]:
    """What a forward pass costs, what will train the network, and what will still change."""
    cost = forward_pass(found.forward_flops_sparse, found.forward_flops_dense)
    forward = [f"forward pass: {cost}", COUNTED] if cost else []
    return [*forward, f"engine: {found.engine}", *found.reasons, *found.notes]


def shape_words(shape: tuple[int, ...]) -> str:
    """A shape as a person writes it."""
    return "×".join(map(str, shape)) or "scalar"


def _row(part: "Part") -> tuple[str, ...]:
    sparse = f"no: {part.dense}" if part.dense else f"yes: {part.why}"
    counts = _counts(part.budget, part.sparse_multiply_adds, part.multiply_adds)
    kept = (f"{part.kept:,}", f"{part.size:,}", percent(part.density))
    return (part.name, shape_words(part.shape), *kept, *counts, sparse)


def _counts(*numbers: int | None) -> tuple[str, ...]:
    return tuple(NOTHING if number is None else f"{number:,}" for number in numbers)
