"""Runs of a second or less, and what their directories say of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import feddst
from feddst.options import updated
from feddst.runtime import Result, RunConfig
from feddst.runtime.loop import Silent, Watcher

OPTIONS = {
    "rounds": 4,
    "eval_every": 2,
    "checkpoint_every": 1,
    "data.clients": 4,
    "data.classes_per_client": 2,
    "data.images_per_class": 4,
    "cohort.size": 2,
    "local.epochs": 1,
    "readjust.every": 2,
    "readjust.until": 4,
    "readjust.alpha": 0.3,
    "engine.kind": "reference",
    "engine.workers": 1,
}


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 4))


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Result]:
    """Runs four rounds, or as the options say, into `tmp_path / name` unless that is None."""
    draws = torch.Generator().manual_seed(3)
    labels = torch.arange(100) % 4
    images = torch.randn(4, 1, 6, 6, generator=draws)[labels] + torch.randn(100, 1, 6, 6, generator=draws)
    data = feddst.Dataset.from_arrays(train=(images[:60], labels[:60]), test=(images[60:], labels[60:]))

    def run(watcher: Watcher | None, name: str | None = "run", *, resume: bool = False, **changes: Any) -> Result:
        options = {option.replace("__", "."): value for option, value in changes.items()}
        config = updated(RunConfig(), {**OPTIONS, **options})
        out = None if name is None else tmp_path / name
        return feddst.run(config, model=network, data=data, out=out, resume=resume, watcher=watcher or Silent())

    return run


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., dict[str, list[tuple[int, float]]]]:
    """What `metrics.jsonl` has: (round, value) of every number, by name."""

    def read(name: str = "run") -> dict[str, list[tuple[int, float]]]:
        series: dict[str, list[tuple[int, float]]] = {}
        for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            for key, value in row.items():
                if value is not None:
                    series.setdefault(key, []).append((row["round"], value))
        return series

    return read
