"""The program, called as a user would, in an empty directory and on data that trains in milliseconds."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from feddst.cli.main import main
from feddst.data import Dataset


@pytest.fixture
def feddst(called: Callable[..., Any], tiny_mnist: Dataset) -> Callable[..., Any]:
    """Calls the program with words, or with one string of them, in `tmp_path`."""
    return partial(called, main)


@pytest.fixture
def small() -> str:
    """Options that make a run small."""
    return (
        "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1 --engine.workers 1 "
        "--eval_every 1 --checkpoint_every 1"
    )
