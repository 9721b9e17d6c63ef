"""Every way to give data that will not do, as a stranger would: one line that says what was given and what would do."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data import Dataset as TorchDataset

import feddst
from feddst import Dataset, Federation
from feddst.errors import FeddstError
from feddst.runtime.loop import Silent

X = np.random.default_rng(0).random((40, 4), dtype=np.float32)
Y = np.arange(40) % 2
F = np.linspace(0, 1, 40)
T: Any = (X, Y)
WRONG: Any = {"text": "ab", "number": 3, "labels": Y, "failing": lambda x: 1 / 0}


class Items(TorchDataset[Any]):
    """Items that a function makes; it may lie about its length."""

    def __init__(self, make: Callable[[int], Any], size: int = 40, there: int = 40) -> None:
        self.make = make
        self.size = size
        self.there = there

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: int) -> Any:
        if at >= self.there:
            raise IndexError("list index out of range")
        return self.make(at)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield X[0], 0


class Endless(TorchDataset[Any]):
    def __getitem__(self, at: int) -> Any:
        return X[0], 0


def failing(at: int) -> Any:
    if at % 40 == 17:
        raise RuntimeError("the disk is full\nand more")
    return X[at], float(F[at])


def run(data: Any, objective: str = "cross-entropy", outputs: int = 2, model: Any = None) -> None:
    config = feddst.configure(
        rounds=1,
        data={"clients": 4, "partition": "iid", "images_per_class": 5},
        cohort={"size": 4},
        local={"objective": objective, "epochs": 1},
        engine={"workers": 1},
    )
    feddst.run(config, model=model or (lambda: nn.Linear(4, outputs)), data=data, watcher=Silent())


PAIR = "must be a pair (inputs, targets) of arrays or tensors, a torch Dataset with a length or a DataLoader, got"

DATA: dict[str, tuple[Any, str]] = {
    "text": ("mnist", "data must be a feddst.Dataset, a feddst.Federation or a pair (train, test), got str"),
    "an array": (X, "data must be a feddst.Dataset, a feddst.Federation or a pair (train, test), got ndarray"),
    "three parts": ((X, Y, Y), "data must be a feddst.Dataset, a feddst.Federation or a pair (train, test), got tuple"),
    "inputs and targets": (T, f"data: train {PAIR} ndarray"),
    "None": ((None, T), f"data: train {PAIR} None"),
    "a list of pairs": (([(x, 0) for x in X], T), f"data: train {PAIR} list of 40"),
    "a generator": (((x for x in X), T), f"data: train {PAIR} generator"),
    "other lengths": (((X, Y[:5]), T), "data: train: 40 inputs but 5 targets"),
    "no examples": (((X[:0], Y[:0]), T), "data: train has no examples"),
    "no features": (((X[:, :0], Y), T), "data: train inputs must be a non-empty array [N, ...], got shape [40, 0]"),
    "one number": (((np.float32(3), Y), T), "data: train inputs must be an array with one row for each example, got a"),
    "flat inputs": (((F, Y), (F, Y)), "data: train inputs must be a non-empty array [N, ...], got shape [40]"),
    "objects": (((np.array([[1, None]] * 40), Y), T), "data: train inputs must be numbers, got an array of objects"),
    "words": (((np.array(["a"] * 40), Y), T), "data: train inputs must be numbers, got an array of text (<U1)"),
    "word targets": (((X, ["a"] * 40), T), "data: train targets must be numbers, got an array of text (<U1)"),
    "no targets": (
        ((X, None), T),
        "data: train targets must be numbers (an array, a tensor, an image, a number), got N",
    ),
    "dates": (
        ((np.array(["2020-01-01"] * 40, "M8"), Y), T),
        "data: train inputs must be numbers, got an array of date",
    ),
    "complex": (((X.astype("c8"), Y), T), "data: train inputs must be numbers, got an array of complex numbers"),
    "sparse": (((torch.eye(40).to_sparse(), Y), T), "data: train inputs must be dense, got a sparse tensor; call its"),
    "ragged": ((([[1, 2], [3]] * 20, Y), T), "data: train inputs: list of 40 items of different shapes is no array"),
    "NaN inputs": (((X * np.nan, Y), T), "data: train inputs must be finite, but input 0 holds NaN or infinity"),
    "NaN targets": (((X, np.where(F > 0.5, np.nan, F)), (X, F)), "data: train targets must be finite, but target 20 h"),
    "other inputs in the test": (
        (T, (X[:, :3], Y)),
        "data: train inputs are float32 [4] but test inputs are float32 [3]",
    ),
    "other targets in the test": ((T, (X, X)), "data: train targets are int64 [] but test targets are float32 [4]"),
    "a negative label": (
        ((X, Y - 1), T),
        "local.objective cross-entropy needs classes numbered from 0, got -1 at example 0",
    ),
    "float labels": (
        ((X, F), (X, F)),
        "local.objective cross-entropy needs one class for each example, int64 [examples], got targets float32 []; for",
    ),
    "more classes than outputs": (((X, Y * 2), T), "the model gives 2 outputs, but the labels are 0 to 2"),
    "uneven inputs": ((({"a": X, "b": X[:3]}, Y), T), "data: train inputs must have equally many examples each, got ["),
    "no inputs": ((({}, Y), T), "data: train inputs must hold at least one array, got none"),
    "other names than the model's": (
        (({"a": X}, Y), ({"a": X}, Y)),
        "the model does not take inputs {a: float32 [4]}: Linear.forward() got an unexpected keyword argument 'a'",
    ),
    "whole numbers": (
        ((X.astype(int), Y), (X.astype(int), Y)),
        "the model does not take inputs int64 [4]: mat1 and mat2 must have the same dtype, but got Long and Float; ",
    ),
    "a stream": (
        (Stream(), T),
        "data: train is an IterableDataset, whose items have no numbers; give a map-style Data",
    ),
    "a loader of a stream": (
        (DataLoader(Stream()), T),
        "data: train is an IterableDataset, whose items have no number",
    ),
    "no length": ((Endless(), T), f"data: train {PAIR} Endless"),
    "a class": ((Items, T), "data: train must have a length, but len() of type says TypeError: object of type 'type'"),
    "a negative length": (
        (Items(failing, -1), T),
        "data: train must have a length, but len() of Items says ValueError",
    ),
    "no items": ((Items(failing, 0), T), "data: train has no examples"),
    "too few items": (
        (Items(lambda at: (X[at], 0), there=30), T),
        "data: train: item 30 of 40 cannot be read: IndexError: list index out of range",
    ),
    "an item that fails": (
        (Items(lambda at: failing(17)), T),
        "data: train: item 0 of 40 cannot be read: RuntimeError: the disk is full",
    ),
    "an item of text": (
        (Items(lambda at: "abc"), T),
        "data: train: item 0: an item must be a pair (inputs, target), got",
    ),
    "an item of None": (
        (Items(lambda at: None), T),
        "data: train: item 0: an item must be a pair (inputs, target), got",
    ),
    "items that are dicts": (
        (Items(lambda at: {"x": X[at], "y": 1}), T),
        "data: train: item 0: an item must be a pair (inputs, target), got dict of 2; of items that are dicts, say",
    ),
    "items of other shapes": (
        (Items(lambda at: (X[at, : 1 + at % 2], 0.5)), T),
        "data: train: inputs of item 5 has the form float32 [2], but that of item 0 float32 [1]; give the data set a",
    ),
    "an item of NaN": ((Items(lambda at: (X[at] * np.nan, 0)), T), "data: train: inputs of item 0 must be finite, got"),
    "a collate_fn that fails": (
        (DataLoader(Items(failing), collate_fn=lambda items: 1 / 0), T),
        "data: train: the collate_fn failed on 1 items: ZeroDivisionError: division by zero",
    ),
    "a collate_fn of too many": (
        (DataLoader(Items(lambda at: 0), collate_fn=lambda items: (torch.zeros(2, 4), torch.zeros(2))), T),
        "data: train: the collate_fn must give 1 inputs for 1 items, as the first dimension, got float32 [2, 4]",
    ),
    "a collate_fn of nothing": (
        (DataLoader(Items(lambda at: 0), collate_fn=lambda items: 7), T),
        "data: train: the collate_fn's batch: an item must be a pair (inputs, target), got int",
    ),
}


@pytest.mark.parametrize(("data", "said"), DATA.values(), ids=DATA)
def test_data_that_will_not_do(data: Any, said: str) -> None:
    with pytest.raises(FeddstError) as refused:
        run(data)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


TASKS: list[tuple[Callable[[], object], str]] = [
    (
        lambda: run((T, T), "binary", 2),
        "the model must give one score for each example, [examples, 1], got shape (2, 2)",
    ),
    (lambda: run((T, T), "tokens"), "local.objective tokens needs a class at each place, int64 [examples, places …]"),
    (
        lambda: run((T, T), "multi-label"),
        "local.objective multi-label needs a 0 or 1 for each question, got targets int",
    ),
    (
        lambda: run(((X, (F, F)),) * 2, "squared-error"),
        "local.objective squared-error needs numbers as targets, got (fl",
    ),
    (
        lambda: run(((X, F),) * 2, "squared-error", 3),
        "the model must give numbers of shape [examples, 1], got shape (2,",
    ),
    (
        lambda: run((Items(failing), (X, F)), "squared-error", 1),
        "data: train: item 17 of 40 cannot be read: RuntimeError: the disk is full",
    ),
    (
        lambda: run((T, T), model=lambda: nn.LSTM(4, 2)),
        "the model must give scores of shape [examples, classes], got tu",
    ),
    (
        lambda: Dataset.of(T, T, inputs="a", target="b"),
        "data: train: inputs= and target= choose among fields with names",
    ),
    (lambda: Dataset.of(T, T, target=WRONG["number"]), "inputs= and target= must be a name or a list of names, got 3"),
    (
        lambda: Dataset.of(*[Items(lambda at: {"x": X[at], "y": 1})] * 2, inputs="x"),
        "data: train: item 0: say which field is the target: target=…, one of x, y",
    ),
    (
        lambda: Dataset.of(*[Items(lambda at: {"x": X[at], "y": 1})] * 2, inputs="x", target="z"),
        "data: train: item 0: an item has no field 'z', it has x, y",
    ),
    (lambda: Dataset.of(T, T, classes="ab"), "data: classes must be a list with the name of each class, got 'ab'"),
    (
        lambda: Dataset.of(T, T, classes=WRONG["number"]),
        "data: classes must be a list with the name of each class, got 3",
    ),
    (lambda: Dataset.of(T, T, classes=["a"]), "data: train labels out of range: label 1 at position 1, allowed 0 to 0"),
    (
        lambda: Dataset.of(T, T, owners=WRONG["labels"]),
        "data: owners must be a pair, those of training and of test examples, got nda",
    ),
    (
        lambda: Dataset.of(T, T, owners=(Y[:3], Y)),
        "data: train owners must be one whole number for each of 40 examples",
    ),
    (lambda: Dataset.of(T, T, owners=(F, F)), "data: train owners must be whole numbers, or names, got float64"),
    (lambda: Dataset.of(T, T, owners=(Y - 5, Y)), "data: train owners must be 0 or more, got -5"),
    (lambda: Dataset.of(T, T, mean=WRONG["text"], std=[1]), "data: mean must be numbers, one a channel, got 'ab'"),
    (lambda: Dataset.of(T, T, mean=[1], std=[1]), "data: mean and std need 4 numbers, one a channel, got 1 and 1"),
    (lambda: Dataset.of(T, T, augment=WRONG["number"]), "data: augment must be a function of inputs, got int"),
    (
        lambda: run(Dataset.of(T, T, augment=WRONG["failing"])),
        "augment failed on inputs float32 [4]: ZeroDivisionError",
    ),
    (lambda: Federation.from_clients(T, T), f"clients: client 0: train {PAIR} ndarray"),
    (lambda: Federation.from_clients([T, T], [T]), "test has 1 test sets for 2 clients: it must have one for each, or"),
    (
        lambda: Federation.from_clients([T, T], T, WRONG["number"]),
        "clients: client_test must hold each client's positions, got int",
    ),
    (lambda: Federation.from_clients([T], 3), f"clients: test {PAIR} int"),
    (
        lambda: Federation.from_clients([T, T], [T, (X[:, :2], Y)]),
        "clients: client 1's test inputs are float32 [2] but client 0's test inputs are float32 [4]",
    ),
    (
        lambda: Federation.from_clients([T, (X, F)], T),
        "clients: client 1 targets are float32 [] but the test set targets are int64 []",
    ),
    (
        lambda: Dataset.of(T, T).inputs(WRONG["text"]),
        "data: inputs must be numbers (an array, a tensor, an image, a number), go",
    ),
]


@pytest.mark.parametrize(("make", "said"), TASKS, ids=[said[:40] for _, said in TASKS])
def test_what_does_not_fit_together(make: Callable[[], object], said: str) -> None:
    with pytest.raises(FeddstError) as refused:
        make()
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
