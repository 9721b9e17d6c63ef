"""Real images, but few of them: evaluating on all of MNIST takes longer than the examples' short runs."""

from dataclasses import replace

import pytest

from feddst.data import DataConfig, load
from feddst.data.config import SOURCES


@pytest.fixture
def little_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tenth of the bundled MNIST."""
    whole = load(DataConfig())
    few = replace(
        whole,
        train_images=whole.train_images[:6000],
        train_labels=whole.train_labels[:6000],
        test_images=whole.test_images[:1000],
        test_labels=whole.test_labels[:1000],
    )
    monkeypatch.setattr(SOURCES["mnist"], "load", lambda config: few)
