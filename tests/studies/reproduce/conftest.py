"""Reproductions small enough to be made many times over, and a record made by hand."""

from pathlib import Path

import pytest
import torch

from feddst.data import Dataset
from feddst.studies.reproduce.progress import Overview
from feddst.studies.reproduce.record import Maker, Point, Record, RecordedRow, RecordedRun

GIB = 2**30
SMALL = {
    "data.clients": 8,
    "data.images_per_class": 5,
    "cohort.size": 3,
    "local.epochs": 2,
    "local.batch": 5,
    "eval_every": 2,
    "readjust.every": 2,
    "readjust.alpha": 0.3,
}
"""What makes runs small; rounds are an option of the reproduction itself."""


def images(classes: int, count: int, shape: tuple[int, ...]) -> Dataset:
    draws = torch.Generator().manual_seed(5)
    centres = torch.randn(classes, *shape, generator=draws)
    labels = torch.arange(count + 4 * classes) % classes
    pixels = centres[labels] + 0.3 * torch.randn(len(labels), *shape, generator=draws)
    return Dataset.from_arrays((pixels[:count], labels[:count]), (pixels[count:], labels[count:]), name="made-up")


@pytest.fixture(scope="session")
def small_mnist() -> Dataset:
    return images(10, 200, (1, 14, 14))


@pytest.fixture(scope="session")
def hundred_classes() -> Dataset:
    return images(100, 1500, (3, 16, 16))


class Listener:
    """Hears of every round, and stops after so many rounds of all runs together."""

    def __init__(self, rounds: int = 10**9) -> None:
        self.seen: list[Overview] = []
        self.rounds = rounds

    def show(self, overview: Overview) -> None:
        self.seen.append(overview)

    def stop(self) -> bool:
        return len(self.seen) >= self.rounds


def recorded(name: str, seed: int, points: list[tuple[float, float]], stopped_by: str = "cap") -> RecordedRun:
    """A run under a cap of 4 GiB from (GiB, accuracy) pairs."""
    rows = tuple(
        Point(i, score, score, score, round(gib * GIB), round(8 * gib * GIB), 0, float(i))
        for i, (gib, score) in enumerate(points, 1)
    )
    cap = 4.0 if stopped_by == "cap" else 0.0
    return RecordedRun(name, seed, rows, Path(f"{name}-seed{seed}"), "paper", cap, stopped_by)


def row(name: str, title: str, *runs: RecordedRun, value: float | None = None) -> RecordedRow:
    return RecordedRow(name, title, value, {"method": name}, runs)


@pytest.fixture
def by_hand() -> Record:
    """Two seeds of two rows; of the first row the second seed has not come to the last cap yet, a third has no run."""
    return Record(
        target="table1",
        reading="paper",
        data="MNIST, 400 clients (classes)",
        command="feddst reproduce table1 --seeds 2",
        made=(Maker("abc", "a machine", "2.6"),),
        seeds=2,
        caps=(1.0, 2.0, 3.0, 4.0),
        accounting="paper",
        rows=(
            row(
                "randommask",
                "RandomMask",
                recorded("randommask", 0, [(0.5, 0.90), (1.5, 0.94), (2.5, 0.96), (4.0, 0.97)]),
                recorded("randommask", 1, [(0.5, 0.88), (1.5, 0.96), (2.5, 0.95), (3.5, 0.99)], stopped_by=""),
            ),
            row(
                "feddst",
                "FedDST",
                recorded("feddst", 0, [(0.5, 0.96), (1.5, 0.97), (2.5, 0.97), (4.0, 0.98)]),
                recorded("feddst", 1, [(0.5, 0.95), (1.5, 0.96), (2.5, 0.97), (4.0, 0.99)]),
            ),
            row("fedavgm", "FedAvgM"),
        ),
    )
