"""A stored run whose optimizer is not here can be looked at; the real one takes the stand-in's place."""

from collections.abc import Iterator

import pytest
import torch

from feddst.clients.optimizers import MissingOptimizer, Torch, optimizer_named
from feddst.core import OPTIMIZERS, register
from feddst.errors import OptionError
from feddst.options import flatten
from feddst.runtime.config import RunConfig, stored_options


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a test registers is forgotten."""
    known = dict(OPTIMIZERS)
    yield
    OPTIMIZERS.clear()
    OPTIMIZERS.update(known)


@pytest.mark.parametrize("give", [register, optimizer_named])
def test_a_stored_config_is_read_without_its_optimizer(give: object) -> None:
    found = stored_options(flatten(RunConfig()) | {"local.optimizer": "mine"})
    assert OPTIMIZERS["mine"] == MissingOptimizer("mine")
    for refuse in (found.check, lambda: OPTIMIZERS["mine"].begin({})):
        with pytest.raises(OptionError, match="mine is one of your own: give it again, as optimizer="):
            refuse()
    assert callable(give)
    give(Torch(torch.optim.NAdam, "mine"))
    found.check()
    assert isinstance(OPTIMIZERS["mine"], Torch)
