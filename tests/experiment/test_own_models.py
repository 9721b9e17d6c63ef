"""Users' own modules, as people write them, from the first round to the last."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.data import Dataset
from feddst.experiment import RunConfig, run
from feddst.experiment.tensorfile import unpack

Configure = Callable[..., RunConfig]


class Tutorial(nn.Module):
    """A CNN as PyTorch's tutorial has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4 * 4 * 4, 4)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.conv(x).relu().view(-1, 4 * 4 * 4))


@pytest.fixture
def coloured(small_data: Dataset) -> Dataset:
    train, test = (images.expand(-1, 3, 6, 6) for images in (small_data.train_images, small_data.test_images))
    return Dataset.from_arrays((train, small_data.train_labels), (test, small_data.test_labels))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"engine__kind": "reference", "engine__workers": 2},
        {"engine__kind": "stacked"},
        {"method": "prunefl", "prunefl__layer_times": "measured"},
        {"method": "grasp"},
        {"method": "lotteryfl"},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()) or "native",
)
def test_the_tutorial_network_trains(
    changes: dict[str, Any], small_config: Configure, coloured: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    result = run(small_config(rounds=2, **changes), model=Tutorial, data=coloured)
    assert result.finished
    scores = result.model(coloured.inputs(coloured.test_images))
    right = (scores.argmax(dim=1) == coloured.test_labels).float().mean()
    assert result.rows[-1].accuracy_global == pytest.approx(float(right))


def test_the_tutorial_network_is_exported(small_config: Configure, coloured: Dataset, tmp_path: Path) -> None:
    result = run(small_config(rounds=1), model=Tutorial, data=coloured, out=tmp_path / "run")
    written = feddst.export(result, "safetensors", tmp_path / "one.safetensors", model=Tutorial, data=coloured)
    loaded, inputs = feddst.load(written.path, model=Tutorial), coloured.inputs(coloured.test_images)
    assert torch.equal(loaded(inputs), result.model(inputs))


@pytest.mark.parametrize("kind", ["native", "reference", "stacked"])
def test_what_clients_keep_is_stored_in_an_order_of_its_own(
    kind: str, small_config: Configure, small_data: Dataset, tmp_path: Path
) -> None:
    """A set's order is another in each process: eight names are sorted by chance once in 40,320."""

    def deep() -> nn.Sequential:
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), *(nn.Linear(5, 5) for _ in range(3)), nn.Linear(5, 4))

    config = small_config(method="lg-fedavg", rounds=1, engine__kind=kind, lg__shared_layers=1)
    run(config, model=deep, data=small_data, out=tmp_path / "run")
    tensors, _ = unpack((tmp_path / "run" / "checkpoint.safetensors").read_bytes())
    kept = [name for name in tensors if name.startswith("client ")]
    assert len(kept) == 4 * 8
    assert kept == sorted(kept)
