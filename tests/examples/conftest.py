"""Real images, but few of them: evaluating on all of MNIST takes longer than the examples' short runs."""

from dataclasses import replace

import numpy as np
import pytest

from feddst.data import DataConfig, load
from feddst.data.config import SOURCES


@pytest.fixture
def little_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tenth of the bundled MNIST."""
    whole = load(DataConfig())
    few = replace(whole, train=whole.train.taken(np.arange(6000)), test=whole.test.taken(np.arange(1000)))
    monkeypatch.setattr(SOURCES["mnist"], "load", lambda config: few)
