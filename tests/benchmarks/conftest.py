"""The benches, called as a user would, in an empty directory and on data that trains in milliseconds."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest

from benchmarks.program import main
from feddst.data import Dataset


def run(words: Sequence[str]) -> int:
    """What `python -m benchmarks.NAME` does with the words after the name."""
    name, *rest = words
    return main(name, import_module(f"benchmarks.{name}.__main__").COMMAND, rest)


@pytest.fixture
def bench(called: Callable[..., Any], tiny_mnist: Dataset) -> Callable[..., Any]:
    """Calls a bench with its name and options as one string, in `tmp_path`."""
    return lambda line: called(run, line)
