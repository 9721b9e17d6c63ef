"""The program, called as a user would, in an empty directory and on data that trains in milliseconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from feddst.cli.main import main
from feddst.data import Dataset
from feddst.data.sources import LOADERS


@dataclass(frozen=True)
class Outcome:
    """What a call of the program gave."""

    code: int
    out: str
    err: str


@pytest.fixture
def tiny_mnist(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Stands in for MNIST: 200 training and 40 test images of 4 classes, 14×14 pixels."""
    draws = torch.Generator().manual_seed(5)
    centres = torch.randn(4, 1, 14, 14, generator=draws)
    labels = torch.arange(240) % 4
    images = centres[labels] + 0.3 * torch.randn(240, 1, 14, 14, generator=draws)
    data = Dataset.from_arrays((images[:200], labels[:200]), (images[200:], labels[200:]), name="mnist")
    monkeypatch.setitem(LOADERS, "mnist", lambda config: data)
    return data


@pytest.fixture
def feddst(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_mnist: Dataset
) -> Callable[..., Outcome]:
    """Calls the program with words, or with one string of them, in `tmp_path`."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Outcome:
        split: Sequence[str] = words[0].split() if len(words) == 1 else words
        code = main(split)
        seen = capsys.readouterr()
        return Outcome(code, seen.out, seen.err)

    return call


@pytest.fixture
def small() -> str:
    """Options that make a run small."""
    return (
        "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1 --engine.workers 1 "
        "--eval_every 1 --checkpoint_every 1"
    )
