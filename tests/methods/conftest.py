"""Real digits, few enough for a test."""

from dataclasses import replace

import pytest

from feddst.data import Dataset
from feddst.data.mnist import load_mnist


@pytest.fixture(scope="session")
def digits() -> Dataset:
    """A tenth of MNIST."""
    whole = load_mnist()
    return replace(
        whole,
        train_images=whole.train_images[:6000],
        train_labels=whole.train_labels[:6000],
        test_images=whole.test_images[:1000],
        test_labels=whole.test_labels[:1000],
    )
