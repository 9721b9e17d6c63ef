"""Data sets of Hugging Face's and partitions of flwr-datasets: as stand-ins here, and real with `-m huggingface`.

The real packages take 400 MB; `make test-huggingface` installs them. Nothing is asked of the network.
"""

import os
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from feddst.core.batches import Batch
from feddst.data import DataConfig, Dataset, Federation, load
from feddst.data.records import ReadRecords
from feddst.errors import DataError, FeddstError


class Table:
    """As much of a `datasets.Dataset` as is asked for; it counts the rows that are read."""

    def __init__(self, columns: Mapping[str, Sequence[Any]], classes: Mapping[str, list[str]] | None = None) -> None:
        self.columns = columns
        self.classes = classes or {}
        self.read: list[int] = []

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    @property
    def features(self) -> dict[str, Any]:
        return {name: types.SimpleNamespace(names=self.classes.get(name)) for name in self.columns}

    def with_format(self, kind: None) -> "Table":
        return self

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, at: int | str) -> Any:
        if isinstance(at, str):
            return self.columns[at]
        self.read.append(at)
        return {name: column[at] for name, column in self.columns.items()}

    def select(self, places: Sequence[int]) -> "Table":
        return Table({name: [column[at] for at in places] for name, column in self.columns.items()}, self.classes)


class Partitioner:
    """As much of a partitioner as is asked for: every third row is a client's."""

    num_partitions = 3

    def __init__(self, dataset: Table | None) -> None:
        self.dataset = dataset

    def load_partition(self, partition_id: int) -> Table:
        if self.dataset is None:
            raise AttributeError("The dataset field should be set\nbefore using it")
        return self.dataset.select(range(partition_id, len(self.dataset), 3))


class FederatedDataset:
    """As much of a `FederatedDataset` as is asked for."""

    def __init__(self, splits: Mapping[str, Table], partitioned: Sequence[str] = ("train",)) -> None:
        self.splits = splits
        self.partitioners = {name: Partitioner(splits[name]) for name in partitioned}

    def load_partition(self, partition_id: int, split: str) -> Table:
        return self.partitioners[split].load_partition(partition_id)

    def load_split(self, split: str) -> Table:
        return self.splits[split]


def pictures(count: int = 30) -> dict[str, list[Any]]:
    pixels = (np.arange(count * 16) // 2 % 256).astype(np.uint8).reshape(count, 4, 4)
    return {"image": [Image.fromarray(one) for one in pixels], "label": [at % 3 for at in range(count)]}


def animals(count: int = 30) -> Table:
    return Table(pictures(count), {"label": ["cat", "dog", "cow"]})


def one(batch: Batch) -> torch.Tensor:
    assert isinstance(batch, torch.Tensor)
    return batch


def test_images_and_named_classes() -> None:
    table = animals(300)
    data = Dataset.of(table, animals(6), inputs="image", target="label")
    assert data.classes == ("cat", "dog", "cow")
    assert data.input_shape == (1, 4, 4)
    assert len(set(table.read)) <= 16  # the column of labels is read as a whole, the images are not
    seen = data.train.read(np.array([1, 5]))
    assert one(seen.targets).tolist() == [1, 2]
    assert float(one(seen.inputs)[0, 0, 0, 0]) == pytest.approx(8 / 255)


def test_columns_of_numbers_and_lists_are_inputs_by_name() -> None:
    table = Table({"a": [1.0, 2.0], "tokens": [[1, 2], [3, 4]], "y": [0.5, 1.5]})
    data = Dataset.of(table, table, inputs=("a", "tokens"), target="y")
    inputs = data.train.read().inputs
    assert isinstance(inputs, dict)
    assert inputs["a"].tolist() == [1.0, 2.0]
    assert inputs["tokens"].tolist() == [[1, 2], [3, 4]]
    assert data.num_classes == 0


def test_each_partition_is_a_client() -> None:
    source = FederatedDataset({"train": animals(), "test": animals(9)})
    clients = Federation.from_flwr(source, "test", inputs="image", target="label")
    assert (clients.num_clients, clients.dataset.classes) == (3, ("cat", "dog", "cow"))
    # Every third row has the same class, which is what its client is tested on.
    assert clients.class_counts().tolist() == [[10, 0, 0], [0, 10, 0], [0, 0, 10]]
    assert [len(test) for test in clients.partition.test] == [3, 3, 3]


def test_clients_are_tested_on_a_share_of_their_own() -> None:
    made = [Federation.from_flwr(Partitioner(animals()), 0.2, inputs="image", target="label") for _ in range(2)]
    clients = made[0]
    assert [len(part) for part in clients.partition.train] == [8, 8, 8]
    assert [len(part) for part in clients.partition.test] == [2, 2, 2]
    firsts = [
        {float(image[0, 0, 0]) for image in one(records.read().inputs)}
        for records in (clients.dataset.train, clients.dataset.test)
    ]
    assert not firsts[0] & firsts[1]
    again = made[1].dataset.test.read()
    assert torch.equal(one(clients.dataset.test.read().inputs), one(again.inputs))


FLWR = "flwr-datasets: "


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: Dataset.of(animals(), animals()),
            "data: train: say which column is the target: target=…, one of",
        ),
        (lambda: Dataset.of(animals(), animals(), target="y"), "data: train has no column 'y', it has image, label"),
        (
            lambda: Dataset.of(*[Table({"x": ["word"], "y": [1]})] * 2, inputs="x", target="y"),
            "data: train: inputs of item 0 must be numbers (an array, a tensor, an image, a number), got text 'word'",
        ),
        (
            lambda: Dataset.of({"train": animals()}, animals(), inputs="image", target="label"),
            "data: train holds several data sets (train); give one of them",
        ),
        (lambda: Federation.from_flwr([animals()], "test"), FLWR + "needs a FederatedDataset, or a partitioner"),
        (lambda: Federation.from_flwr(Partitioner(animals()), "test"), FLWR + "test='test' names a split of a Fed"),
        (
            lambda: Federation.from_flwr(Partitioner(None), animals()),
            FLWR + "partition 0 cannot be had: The dataset field should be set before using it",
        ),
        (
            lambda: Federation.from_flwr(FederatedDataset({"train": animals()}), "dev"),
            FLWR + "test='dev' cannot be had: 'dev'",
        ),
        (
            lambda: Federation.from_flwr(FederatedDataset({"a": animals(), "b": animals()}, ("a", "b")), 0.1),
            FLWR + "say which split the clients share: split=…, one of a, b",
        ),
        (
            lambda: Federation.from_flwr(FederatedDataset({"train": animals()}), 0.1, split="x"),
            FLWR + "split must be one with a partitioner, train, got 'x'",
        ),
        (
            lambda: Federation.from_flwr(Partitioner(animals(3)), 0.1, inputs="image", target="label"),
            "flwr: client 0 has 1 examples, too few to be tested on 0.1 of them and to train on the others",
        ),
        (
            lambda: Federation.from_flwr(Partitioner(animals()), 1.0, inputs="image", target="label"),
            "flwr: test must be in (0, 1) where it is a share of each client's own, got 1.0",
        ),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(make: Callable[[], object], said: str) -> None:
    with pytest.raises(FeddstError) as refused:
        make()
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The package `datasets`, which asks nobody anything."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        monkeypatch.setitem(os.environ, name, "1")
    monkeypatch.setitem(os.environ, "FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setitem(os.environ, "HF_HOME", str(tmp_path / "home"))
    import datasets  # type: ignore[import-not-found,unused-ignore]

    return datasets


def real_animals(datasets: Any, count: int = 30) -> Any:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "cow"])})
    return datasets.Dataset.from_dict(pictures(count), features=features)


@pytest.mark.huggingface
@pytest.mark.filterwarnings("default")
class TestReal:
    """The same with the packages themselves."""

    def test_a_data_set_on_disk_is_that_of_the_stand_in(self, real: Any, tmp_path: Path) -> None:
        real_animals(real).save_to_disk(tmp_path / "made")
        there = real.load_from_disk(tmp_path / "made")
        data = Dataset.of(there, there, inputs="image", target="label")
        same = Dataset.of(animals(), animals(), inputs="image", target="label")
        assert data.classes == same.classes
        assert isinstance(data.train, ReadRecords)
        assert data.train.known is not None
        assert torch.equal(one(data.train.read().inputs), one(same.train.read().inputs))
        assert torch.equal(one(data.train.targets), one(same.train.targets))

    def test_partitioners_and_a_federated_dataset(self, real: Any, tmp_path: Path) -> None:
        from flwr_datasets import FederatedDataset as Federated  # type: ignore[import-not-found,unused-ignore]
        from flwr_datasets.partitioner import IidPartitioner  # type: ignore[import-not-found,unused-ignore]

        partitioner = IidPartitioner(num_partitions=3)
        partitioner.dataset = real_animals(real)
        clients = Federation.from_flwr(partitioner, 0.2, inputs="image", target="label")
        assert [len(part) for part in clients.partition.train] == [8, 8, 8]
        files = {split: str(tmp_path / f"{split}.parquet") for split in ("train", "test")}
        for path in files.values():
            real_animals(real).to_parquet(path)
        source = Federated(dataset="parquet", data_files=files, partitioners={"train": 5})
        whole = Federation.from_flwr(source, "test", inputs="image", target="label")
        assert (whole.num_clients, int(whole.class_counts().sum())) == (5, 30)
        with pytest.raises(DataError, match="test='dev' cannot be had"):
            Federation.from_flwr(source, "dev", inputs="image", target="label")

    def test_parquet_files(self, real: Any, tmp_path: Path) -> None:
        path = tmp_path / "t.parquet"
        real.Dataset.from_dict({"a": [1.0, 2, 3, 4, 5], "y": ["u", "v", "u", "v", "u"]}).to_parquet(path)
        assert load(DataConfig(dataset="file", root=str(path), target="y", test_share=0.4)).classes == ("u", "v")
        path.write_bytes(b"PAR1" + b"x" * 50)
        with pytest.raises(DataError, match="cannot be read as a Parquet file"):
            load(DataConfig(dataset="file", root=str(path), target="y"))
