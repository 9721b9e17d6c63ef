"""Data in the forms that people have them, as records."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset, random_split
from torch.utils.data import Dataset as TorchDataset

import feddst
from feddst.core.batches import Batch
from feddst.data import Dataset, Federation, StoredRecords
from feddst.data.adapters import as_records, classes_of
from feddst.data.records import ReadRecords
from feddst.errors import DataError
from feddst.runtime.loop import Silent

INPUTS = torch.arange(80, dtype=torch.float32).view(20, 4) / 10
LABELS = torch.arange(20) % 2


class Items(TorchDataset[Any]):
    """Made of what a function says of each position."""

    def __init__(self, make: Any, size: int = 20, **known: Any) -> None:
        self.make = make
        self.size = size
        self.read = 0
        vars(self).update(known)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: int) -> Any:
        self.read += 1
        return self.make(at)


def one(batch: Batch) -> Tensor:
    assert isinstance(batch, Tensor)
    return batch


def inputs_of(source: Any, **fields: Any) -> Batch:
    return as_records("data", "train", source, **fields).read(np.array([3, 1])).inputs


def trained(data: Any, model: Any, objective: str = "cross-entropy") -> feddst.Result:
    config = feddst.configure(
        rounds=1,
        data={"clients": 2, "partition": "iid", "images_per_class": 3},
        cohort={"size": 2},
        local={"epochs": 1, "objective": objective},
        engine={"workers": 1, "kind": "reference"},
    )
    return feddst.run(config, model=model, data=data, watcher=Silent())


@pytest.mark.parametrize("wrap", [lambda whole: whole, lambda whole: DataLoader(whole, batch_size=3, shuffle=True)])
def test_what_is_in_memory_stays_there(wrap: Any) -> None:
    whole = TensorDataset(INPUTS, LABELS)
    records = as_records("data", "train", wrap(whole))
    assert isinstance(records, StoredRecords)
    assert torch.equal(one(records.inputs), INPUTS)
    part = as_records("data", "train", wrap(Subset(whole, [4, 2])))
    assert isinstance(part, StoredRecords)
    assert torch.equal(one(part.inputs), INPUTS[[4, 2]])
    halves = random_split(whole, [12, 8], torch.Generator().manual_seed(0))
    data = Dataset.of(wrap(halves[0]), wrap(halves[1]))
    assert (len(data.train), len(data.test), data.classes) == (12, 8, ("0", "1"))


def test_several_tensors_are_several_inputs() -> None:
    found = inputs_of(TensorDataset(INPUTS, INPUTS[:, :1], LABELS))
    assert isinstance(found, tuple)
    assert [list(part.shape) for part in found] == [[2, 4], [2, 1]]


@pytest.mark.parametrize(
    ("item", "fields"),
    [
        (lambda at: (INPUTS[at], LABELS[at]), {}),
        (lambda at: [INPUTS[at].numpy(), int(LABELS[at])], {}),
        (lambda at: (INPUTS[at].tolist(), np.int32(LABELS[at])), {}),
        (lambda at: {"x": INPUTS[at], "y": LABELS[at], "name": "n"}, {"inputs": "x", "target": "y"}),
        (lambda at: {"x": INPUTS[at], "y": LABELS[at]}, {"inputs": ["x"], "target": ["y"]}),
    ],
)
def test_items_of_many_forms(item: Any, fields: dict[str, Any]) -> None:
    assert torch.equal(one(inputs_of(Items(item), **fields)), INPUTS[[3, 1]])


def test_a_mapping_of_arrays() -> None:
    arrays = {"x": INPUTS.numpy(), "y": LABELS.numpy()}
    assert torch.equal(one(inputs_of(arrays, inputs="x", target="y")), INPUTS[[3, 1]])
    with pytest.raises(DataError, match="data: train: say which of its arrays is the target: target=…, one of x, y"):
        inputs_of(arrays)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 2)
        self.other = nn.Linear(1, 2)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        found: Tensor = self.one(left) + self.other(right)
        return found


@pytest.mark.parametrize(
    "make",
    [
        lambda at: (INPUTS[at], INPUTS[at, :1], LABELS[at]),
        lambda at: ((INPUTS[at], INPUTS[at, :1]), LABELS[at]),
        lambda at: ([INPUTS[at], INPUTS[at, :1]], LABELS[at]),
        lambda at: ({"left": INPUTS[at], "right": INPUTS[at, :1]}, LABELS[at]),
    ],
)
def test_networks_with_two_inputs(make: Any) -> None:
    assert trained((Items(make), Items(make)), TwoInputs).rows[-1].round == 1


def test_images_of_pillows() -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10
    grey = one(inputs_of(Items(lambda at: (Image.fromarray(pixels[:, :, 0]), 0))))
    assert grey.shape == (2, 1, 2, 3)
    assert float(grey[0, 0, 1, 2]) == pytest.approx(pixels[1, 2, 0] / 255)
    colour = as_records(
        "data", "train", Items(lambda at: (Image.fromarray(pixels), 0)), mean=(0.1, 0.2, 0.3), std=(1, 2, 4)
    )
    seen = one(colour.read(np.array([0])).inputs)
    assert float(seen[0, 2, 1, 2]) == pytest.approx((pixels[1, 2, 2] / 255 - 0.3) / 4)


def test_masks_of_pillows_are_classes_and_not_scaled() -> None:
    mask = Image.fromarray(np.array([[0, 1], [2, 255]], np.uint8))
    seen = as_records("data", "train", Items(lambda at: (INPUTS[at], mask))).read(np.array([0]))
    assert one(seen.targets).tolist() == [[[0, 1], [2, 255]]]


def test_a_loaders_collate_fn_makes_the_batches() -> None:
    def padded(items: Any) -> Any:
        longest = max(len(item) for item, _ in items)
        rows = [torch.nn.functional.pad(item, (0, longest - len(item))) for item, _ in items]
        return torch.stack(rows), torch.tensor([label for _, label in items])

    uneven = Items(lambda at: (torch.ones(1 + at % 3), at % 2))
    records = as_records("data", "train", DataLoader(uneven, collate_fn=padded))
    assert one(records.read(np.array([1, 2])).inputs).tolist() == [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    assert one(records.targets).tolist() == LABELS.tolist()


def test_known_labels_spare_reading() -> None:
    labels = [at % 2 for at in range(5000)]
    source = Items(lambda at: (INPUTS[at % 20], at % 2), 5000, targets=labels)
    records = as_records("data", "train", source)
    assert isinstance(records, ReadRecords)
    assert one(records.targets).tolist() == labels
    assert source.read == 16
    both = as_records("data", "train", ConcatDataset([source, Subset(source, range(100, 105))]))
    assert len(one(both.targets)) == 5005
    assert source.read <= 32


@pytest.mark.parametrize("known", [{"targets": LABELS.tolist(), "target_transform": abs}, {"targets": [0] * 20}])
def test_labels_that_items_do_not_have_are_not_believed(known: dict[str, Any]) -> None:
    records = as_records("data", "train", Items(lambda at: (INPUTS[at], 1 - int(LABELS[at])), **known))
    assert one(records.targets).tolist() == (1 - LABELS).tolist()


def test_names_of_classes() -> None:
    source = Items(lambda at: (INPUTS[at], int(LABELS[at])), targets=LABELS.tolist(), classes=["cat", "dog"])
    assert Dataset.of(source, source).classes == ("cat", "dog")
    assert Federation.from_clients([source, source], source).dataset.classes == ("cat", "dog")
    assert classes_of(Items(lambda at: None, targets=[0, 3] * 10, classes=["cat", "dog"])) == ()
    assert Dataset.of(source, source, classes=("a", "b")).classes == ("a", "b")


def test_owners_may_be_names() -> None:
    people = [f"p{at % 4}" for at in range(20)]
    data = Dataset.of((INPUTS, LABELS), (INPUTS, LABELS), owners=(people, people[::-1]))
    assert data.owners is not None
    assert data.owners[0].tolist() == [at % 4 for at in range(20)]
    assert data.owners[1].tolist() == [at % 4 for at in range(20)][::-1]


def test_a_readme_regression() -> None:
    line = Items(lambda at: (INPUTS[at], float(INPUTS[at].sum())))
    result = trained((line, line), lambda: nn.Linear(4, 1), "squared-error")
    assert result.rows[-1].metric.name == "rmse"
