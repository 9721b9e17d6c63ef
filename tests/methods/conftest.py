"""Real digits, few enough for a test."""

from dataclasses import replace

import numpy as np
import pytest

from feddst.data import Dataset
from feddst.data.mnist import load_mnist


@pytest.fixture(scope="session")
def digits() -> Dataset:
    """A tenth of MNIST."""
    whole = load_mnist()
    return replace(whole, train=whole.train.taken(np.arange(6000)), test=whole.test.taken(np.arange(1000)))
