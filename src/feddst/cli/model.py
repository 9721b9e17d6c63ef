"""`feddst model show`: what a run's network consists of, and what it costs to use."""

from feddst.cli.arguments import Arguments
from feddst.cli.screen import show_table
from feddst.cli.settings import Origin, gather
from feddst.options import Option, options_of
from feddst.runtime import RunConfig
from feddst.runtime.anatomy import Anatomy, Part, anatomy_of
from feddst.runtime.config import config_of, refuse_ineffective
from feddst.runtime.wording import NOTHING, forward_pass, percent

HEADING = ("parameter", "shape", "kept", "of", "density", "multiply-adds", "if dense", "sparse")
COUNTED = "two FLOPs for each multiply-add with a weight; biases, norms, pooling and activations are not counted"


def model_options() -> list[Option]:
    """Every option of `feddst model show`."""
    return options_of(Origin) + options_of(RunConfig)


def model_command(given: Arguments) -> int:
    """Carry out `feddst model show`."""
    options = options_of(RunConfig)
    settings = gather(given, "run", options)
    config = config_of(settings.values)
    refuse_ineffective([config], settings.asked_for(options))
    config.check()
    found = anatomy_of(config)
    print(describe(config, found))
    show_table(table(found), numbers=True)
    for line in closing(found):
        print(line)
    return 0


def describe(config: RunConfig, found: Anatomy) -> str:
    """Which network it is, and for which inputs."""
    sizes = found.sizes
    return (
        f"{found.network}, as {config.method} begins with it (seed {config.seed}): inputs {_shape(sizes.shape)}, "
        f"{sizes.classes} classes ({config.data.dataset})"
    )


def table(found: Anatomy) -> list[tuple[str, ...]]:
    """The parameters as rows of words, the heading first and the total last."""
    share = percent(found.kept / found.size)
    counts = _counts(found.sparse_multiply_adds, found.multiply_adds)
    total = ("total", "", f"{found.kept:,}", f"{found.size:,}", share, *counts, "")
    return [HEADING, *map(_row, found.parts), total]


def closing(found: Anatomy) -> list[str]:
    """What a forward pass costs, and what will still change."""
    cost = forward_pass(found.forward_flops_sparse, found.forward_flops_dense)
    forward = [f"forward pass: {cost}", COUNTED] if cost else []
    return [*forward, *found.notes]


def _row(part: Part) -> tuple[str, ...]:
    sparse = f"no: {part.dense}" if part.dense else "yes"
    counts = _counts(part.sparse_multiply_adds, part.multiply_adds)
    return (part.name, _shape(part.shape), f"{part.kept:,}", f"{part.size:,}", percent(part.density), *counts, sparse)


def _counts(*numbers: int | None) -> tuple[str, ...]:
    return tuple(NOTHING if number is None else f"{number:,}" for number in numbers)


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"
