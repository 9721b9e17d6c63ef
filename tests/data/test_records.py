"""Records: what is read, when, with which random changes, and the same in every engine."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

import feddst
from feddst.core.batches import Batch
from feddst.data import Dataset, Federation
from feddst.data.adapters import as_records
from feddst.data.records import ChainedRecords, ReadRecords, Records, StoredRecords, TakenRecords, chained
from feddst.errors import DataError
from feddst.runtime.loop import Silent

INPUTS = np.random.default_rng(3).normal(size=(60, 4)).astype(np.float32)
LABELS = np.arange(60) % 3


class Items(TorchDataset[Any]):
    """Map-style, as people write them: noise is drawn from whatever generator they like."""

    def __init__(self, noise: str = "", size: int = 60) -> None:
        self.noise = noise
        self.size = size
        self.reads: list[int] = []
        self.targets = LABELS[:size].tolist()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        self.reads.append(at)
        value = torch.from_numpy(INPUTS[at])
        if "torch" in self.noise:
            value = value + torch.randn(4)
        if "numpy" in self.noise:
            value = value + np.random.normal()  # noqa: NPY002
        if "random" in self.noise:
            value = value + random.random()
        return value, int(LABELS[at])


def one(batch: Batch) -> Tensor:
    assert isinstance(batch, Tensor)
    return batch


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


CONFIG = feddst.configure(
    method="feddst",
    rounds=3,
    data={"clients": 4, "partition": "iid", "classes_per_client": 1, "images_per_class": 6},
    cohort={"size": 3},
    local={"epochs": 2, "batch": 4},
    readjust={"every": 1, "until": 3},
    sparsity={"level": 0.5},
    engine={"workers": 1, "kind": "reference"},
    eval_every=1,
)


def weights(data: Any, kind: str = "reference", workers: int = 1, **more: Any) -> dict[str, Tensor]:
    engine = replace(CONFIG.engine, kind=kind, workers=workers)
    config = replace(CONFIG, engine=engine, rounds=more.pop("rounds", CONFIG.rounds))
    return dict(feddst.run(config, model=network(), data=data, watcher=Silent(), **more).model.state_dict())


def same(mine: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float = 0.0) -> bool:
    return all(float((mine[name] - theirs[name]).abs().max()) <= tolerance for name in theirs)


def of_items(noise: str = "") -> Dataset:
    return Dataset.of(Items(noise), Items(size=20))


@pytest.fixture(autouse=True)
def _one_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every network of a test has the same weights in the beginning."""
    module = network()
    monkeypatch.setattr(f"{__name__}.network", lambda: module)


def test_random_transforms_follow_from_the_seed_in_every_engine(tmp_path: Path) -> None:
    data = of_items("torch, numpy, random")
    expected = weights(data)
    torch.rand(3), random.random()  # what others draw changes nothing
    assert same(weights(of_items("torch, numpy, random")), expected)
    assert same(weights(data, workers=2), expected)
    assert same(weights(data, "native", 2), expected, 1e-4)
    assert same(weights(data, "stacked"), expected, 1e-4)
    assert not same(weights(of_items()), expected)
    weights(data, rounds=1, out=tmp_path / "run")
    assert same(weights(data, out=tmp_path / "run", resume=True), expected)


def test_data_that_are_read_train_like_those_in_memory() -> None:
    stored = Dataset.of((INPUTS, LABELS), (INPUTS[:20], LABELS[:20]))
    for kind in ("reference", "native", "stacked"):
        assert same(weights(of_items(), kind), weights(stored, kind))


def test_augmentation_follows_from_the_seed_in_every_engine() -> None:
    def augment(inputs: Batch) -> Batch:
        return one(inputs) + torch.randn(one(inputs).shape)

    stored = Dataset.of((INPUTS, LABELS), (INPUTS[:20], LABELS[:20]), augment=augment)
    read = Dataset.of(Items(), Items(size=20), augment=augment)
    expected = weights(stored)
    assert same(weights(read), expected)
    assert same(weights(stored, "stacked"), expected, 1e-4)
    assert not same(weights(of_items()), expected)


def test_random_changes_differ_by_round_client_and_position_and_never_in_tests() -> None:
    records = as_records("data", "train", Items("numpy"))
    index = np.array([0, 1])

    def noise(draw: tuple[int, int, int] | None) -> list[float]:
        seen = one(records.read(index, draw).inputs)[:, 0] - torch.from_numpy(INPUTS[:2, 0])
        return [float(value) for value in seen]

    draws = [noise((0, 1, 2)), noise((0, 2, 2)), noise((0, 1, 3)), noise((1, 1, 2))]
    assert len({value for draw in draws for value in draw}) == 8
    assert noise((0, 1, 2)) == draws[0]
    assert noise(None) == noise(None)
    # An item's noise does not depend on what else is read.
    alone = one(records.read(np.array([1]), (0, 1, 2)).inputs)[0, 0] - INPUTS[1, 0]
    assert float(alone) == draws[0][1]


def test_reading_leaves_the_generators_as_they_were() -> None:
    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]  # noqa: NPY002
    as_records("data", "train", Items("torch, numpy, random")).read(np.array([3]), (0, 0, 0))
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]  # noqa: NPY002


class Counting(Items):
    """As large as one likes; counts the items that are alive."""

    alive = 0
    most = 0

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        self.reads.append(at)
        item = _Counted(torch.full((4,), float(at % 7)))
        Counting.alive += 1
        Counting.most = max(Counting.most, Counting.alive)
        return item, at % 3  # type: ignore[return-value]


class _Counted:
    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = self.value.numpy()
        return found

    def __del__(self) -> None:
        Counting.alive -= 1


def test_only_one_clients_examples_are_held_at_once() -> None:
    """A hundred thousand items of which each of 2 rounds trains 3 clients on 6."""
    Counting.most = 0
    train = Counting(size=100_000)
    train.targets = (np.arange(100_000) % 3).tolist()
    data = Dataset.of(train, Items(size=20))
    looked_at = len(train.reads)
    assert looked_at <= 64
    weights(data, rounds=2)
    # Round 0 readies FedDST's masks without training; 3 clients a round read 6 items each.
    assert len(train.reads) - looked_at <= 3 * 3 * 6 + 64
    assert Counting.most <= 16
    assert Counting.alive == 0


def test_test_examples_are_read_in_chunks() -> None:
    sizes: list[int] = []

    class Chunks(ReadRecords):
        def read(self, index: Any = None, draw: Any = None) -> Any:
            sizes.append(len(index))
            return super().read(index, draw)

    test = Counting(size=1200)
    test.targets = (np.arange(1200) % 3).tolist()
    read = as_records("data", "test", test)
    assert isinstance(read, ReadRecords)
    weights(Dataset("data", as_records("data", "train", Items()), Chunks(**vars(read)), ("a", "b", "c")), rounds=1)
    assert max(sizes) == 500


def parts() -> list[Records]:
    read = as_records("data", "train", Items())
    stored = as_records("data", "train", (INPUTS, LABELS))
    order = np.random.default_rng(0).permutation(60)
    back = np.argsort(order)
    shuffled = as_records("data", "train", (INPUTS[order], LABELS[order]))
    halves = [as_records("data", "train", (INPUTS[:25], LABELS[:25])), read.taken(np.arange(25, 60))]
    return [read, stored, TakenRecords(shuffled, back), ChainedRecords(halves), shuffled.taken(back)]


@given(st.lists(st.integers(0, 59), min_size=1, max_size=20), st.data())
@settings(max_examples=40)
def test_all_kinds_of_records_read_the_same(index: list[int], data: st.DataObject) -> None:
    places = np.array(index)
    some = np.array(data.draw(st.lists(st.integers(0, len(index) - 1), min_size=1, max_size=5)))
    for records in parts():
        assert len(records) == 60
        seen = records.read(places)
        assert np.array_equal(one(seen.inputs), INPUTS[places])
        assert np.array_equal(one(seen.targets), LABELS[places])
        taken = records.taken(places).read(some)
        assert np.array_equal(one(taken.inputs), INPUTS[places[some]])
        assert np.array_equal(one(records.targets), LABELS)


def test_records_in_memory_are_chained_in_memory() -> None:
    stored = as_records("data", "train", (INPUTS, LABELS))
    assert isinstance(chained([stored, stored]), StoredRecords)
    assert isinstance(chained([stored, as_records("data", "train", Items())]), ChainedRecords)


def test_one_data_set_for_each_client_and_their_own_tests() -> None:
    clients = Federation.from_clients([Items("torch", size) for size in (1, 60, 7)], [Items(size=3)] * 3)
    assert [clients.num_images(client) for client in range(3)] == [1, 60, 7]
    assert [test.tolist() for test in clients.partition.test] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert same(weights(clients), weights(clients))
    # The same item has other noise at another client.
    first, second = (one(clients.client_data(client, (0, 1, client)).inputs)[0] for client in (0, 1))
    assert not torch.equal(first, second)


def test_clients_of_one_to_a_thousand_examples() -> None:
    draws = np.random.default_rng(0)
    sizes = [1, 3, 1000, 40]
    own = [(draws.normal(size=(size, 4)).astype(np.float32), np.arange(size) % 3) for size in sizes]
    clients = Federation.from_clients(own, (INPUTS, LABELS))
    assert clients.class_counts().sum(1).tolist() == sizes
    expected = weights(clients, rounds=2)
    assert same(weights(clients, "native", rounds=2), expected, 1e-4)
    assert same(weights(clients, "stacked", rounds=2), expected, 1e-4)


def test_augmentation_may_write_to_what_it_is_given() -> None:
    """A client of its own reads all its examples at once, in every round: what is stored stays as it is."""
    stored = Dataset.of((INPUTS.copy(), LABELS), (INPUTS, LABELS), augment=lambda inputs: one(inputs).add_(1)).train
    for _ in range(2):
        assert torch.equal(one(stored.read(draw=(0, 1, 0)).inputs), torch.from_numpy(INPUTS) + 1)


@pytest.mark.parametrize("make", [lambda: Items("torch"), lambda: (INPUTS, LABELS)])
def test_augmentation_keeps_its_inputs_form(make: Callable[[], Any]) -> None:
    cut = Dataset.of(make(), (INPUTS, LABELS), augment=lambda inputs: one(inputs)[:, :2])
    with pytest.raises(DataError, match=r"augment must give inputs like those it is given, float32 \[4\], got float32"):
        cut.train.read(np.array([0]), (0, 0, 0))
    broken = Dataset.of(make(), (INPUTS, LABELS), augment=lambda inputs: one(inputs) * torch.nan)
    with pytest.raises(DataError, match="augment gave inputs with NaN or infinity"):
        broken.train.read(np.array([0]), (0, 0, 0))
