"""What a data set checks, and how stored images become inputs."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from feddst.core.batches import Batch
from feddst.data import DataConfig, Dataset, StoredRecords, federate
from feddst.errors import DataError, OptionError

IMAGES = np.arange(12, dtype=np.uint8).reshape(3, 1, 2, 2)
LABELS = np.array([0, 1, 1])


def dataset(images: Any = IMAGES, labels: Any = LABELS, **details: Any) -> Dataset:
    return Dataset.from_arrays((images, labels), (IMAGES, LABELS), **details)


def one(batch: Batch) -> torch.Tensor:
    assert isinstance(batch, torch.Tensor)
    return batch


def test_arrays_become_tensors_with_numbered_classes() -> None:
    data = dataset()
    assert data.classes == ("0", "1")
    assert data.num_classes == 2
    assert data.input_shape == (1, 2, 2)
    assert data.train_labels.dtype == torch.int64
    assert data.train_images.tolist() == IMAGES.tolist()


def test_grey_images_get_a_channel() -> None:
    data = Dataset.from_arrays((IMAGES[:, 0], LABELS), (IMAGES[:, 0], LABELS))
    assert data.input_shape == (1, 2, 2)


def test_tensors_read_only_and_big_endian_arrays_are_taken() -> None:
    fixed = IMAGES.copy()
    fixed.setflags(write=False)
    assert dataset(fixed, LABELS.astype(">i2")).train_labels.tolist() == [0, 1, 1]
    assert dataset(torch.from_numpy(IMAGES), torch.tensor([1, 0, 1])).train_labels.tolist() == [1, 0, 1]


def test_uint8_inputs_are_scaled_and_normalised_by_channel() -> None:
    images = np.array([[[[0]], [[255]]], [[[51]], [[51]]]], np.uint8)
    data = Dataset.from_arrays((images, [0, 1]), (images, [0, 1]), mean=(0.2, 0.6), std=(0.1, 0.2))  # type: ignore[arg-type]
    # 51/255 = 0.2: (0 - .2)/.1 = -2, (1 - .6)/.2 = 2, (.2 - .2)/.1 = 0, (.2 - .6)/.2 = -2.
    expected = torch.tensor([[-2.0, 2.0], [0.0, -2.0]])
    torch.testing.assert_close(one(data.inputs(data.train_images)).flatten(1), expected)
    assert data.train_images.dtype == torch.uint8


def test_inputs_of_arrays_are_those_of_tensors() -> None:
    grey = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    data = Dataset.from_arrays(train=(grey, np.array([0, 1])), test=(grey, np.array([0, 1])), mean=(0.5,), std=(0.25,))
    assert torch.equal(one(data.inputs(grey)), one(data.inputs(data.test_images)))
    assert one(data.inputs(grey)).shape == (2, 1, 3, 4)


def test_uint8_inputs_without_statistics_are_only_scaled() -> None:
    images = torch.tensor([[[[255, 0], [51, 102]]]], dtype=torch.uint8)
    torch.testing.assert_close(one(dataset().inputs(images)).flatten(), torch.tensor([1.0, 0.0, 0.2, 0.4]))


@pytest.mark.parametrize(
    ("stored", "given"),
    [(torch.float32, torch.float32), (torch.float64, torch.float32), (torch.int64, torch.int64)],
)
def test_other_inputs_keep_their_values(stored: torch.dtype, given: torch.dtype) -> None:
    images = torch.tensor([[300, -2]], dtype=stored)
    inputs = one(dataset().inputs(images))
    assert inputs.dtype == given
    assert inputs.tolist() == [[300, -2]]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES, [0, 1], "arrays: train: 3 inputs but 2 targets"),
        (IMAGES, [0, 7, -1], "arrays: train labels out of range: label 7 at position 1, allowed 0 to 1"),
        (IMAGES, [0, 1, -1], "arrays: train labels out of range: label -1 at position 2, allowed 0 to 1"),
        (IMAGES, [0.0, 1.0, 1.0], "arrays: train labels must be int64 [N] where there are classes, got float32 [N]"),
        (IMAGES, [[0], [1], [1]], "arrays: train labels must be int64 [N] where there are classes, got int64 [N, 1]"),
        (IMAGES[:0], [], "arrays: train has no examples"),
        (IMAGES[:0], LABELS[:0], "arrays: train has no examples"),
        (
            IMAGES[:, :, :1],
            LABELS,
            "arrays: train inputs are uint8 [1, 1, 2] but test inputs are uint8 [1, 2, 2]",
        ),
        (
            IMAGES.astype(np.float32),
            LABELS,
            "arrays: train inputs are float32 [1, 2, 2] but test inputs are uint8 [1, 2, 2]",
        ),
        (np.array(["a"]), [0], "arrays: train inputs must be numbers, got an array of text (<U1)"),
    ],
)
def test_bad_arrays_are_refused(images: Any, labels: Any, message: str) -> None:
    with pytest.raises(DataError) as refused:
        dataset(images, labels, classes=("a", "b"))
    assert str(refused.value) == message


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_images_that_are_not_finite_are_refused(value: float) -> None:
    images = np.zeros((3, 4))
    images[1, 2] = value
    with pytest.raises(DataError, match="test inputs must be finite, but input 1 holds NaN or infinity"):
        Dataset.from_arrays((np.zeros((3, 4)), LABELS), (images, LABELS))


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.5, 0.5), (1.0, 1.0), "need 1 numbers, one a channel, got 2 and 2"),
        ((0.5,), (), "need 1 numbers, one a channel, got 1 and 0"),
        ((0.5,), (0.0,), "std above 0"),
        ((float("nan"),), (1.0,), "mean must be finite"),
    ],
)
def test_bad_statistics_are_refused(mean: tuple[float, ...], std: tuple[float, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataset(mean=mean, std=std)


def test_statistics_are_refused_where_they_would_not_be_used() -> None:
    tokens = np.zeros((3, 5), np.int64)
    with pytest.raises(DataError, match=r"mean and std are for floats and uint8 images, got int64 \[5\]"):
        Dataset.from_arrays((tokens, LABELS), (tokens, LABELS), mean=(0.0,), std=(1.0,))


def test_the_constructor_checks_too() -> None:
    images, labels = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int32)
    train = StoredRecords(images, labels)
    with pytest.raises(DataError, match="broken: train labels must be int64"):
        Dataset("broken", train, train, ("a",))
    with pytest.raises(DataError, match=r"broken: train must be Records, as Dataset\.of\(train, test\) makes"):
        Dataset("broken", images, labels)  # type: ignore[arg-type]


def test_images_held_out_take_the_place_of_the_test_images() -> None:
    images = np.arange(100, dtype=np.float32).reshape(50, 1, 1, 2)
    data = Dataset.from_arrays(train=(images, np.arange(50) % 5), test=(images[:5], np.arange(5)))
    held = data.holding_out(20)
    firsts = [{float(image[0, 0, 0]) for image in part} for part in (held.train_images, held.test_images)]
    assert [len(part) for part in firsts] == [30, 20]
    assert not firsts[0] & firsts[1]
    assert firsts[0] | firsts[1] == {float(value) for value in range(0, 100, 2)}
    assert all(
        int(label) == int(image[0, 0, 0]) // 2 % 5
        for image, label in zip(held.test_images, held.test_labels, strict=True)
    )
    assert torch.equal(held.test_images, data.holding_out(20).test_images)
    with pytest.raises(OptionError, match=r"data\.held_out must be below 50, got 50"):
        data.holding_out(50)


def test_no_client_holds_an_image_that_is_held_out() -> None:
    federation = federate(DataConfig(clients=10, held_out=1000), seed=0)
    assert len(federation.dataset.test_labels) == 1000
    assert len(federation.dataset.train_labels) == 59_000
    again = federate(DataConfig(clients=10, held_out=1000), seed=1, dataset=federation.dataset)
    assert again.dataset is federation.dataset


def test_a_data_set_is_shown_in_one_line() -> None:
    assert repr(dataset()) == "Dataset('arrays': 3 train, 3 test, inputs uint8 [1, 2, 2], 2 classes)"


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (
            TensorDataset(torch.zeros(3, 4), torch.tensor(LABELS)),
            r"a pair .* got TensorDataset; for torch Datasets .* Dataset\.of",
        ),
        ((IMAGES, LABELS, LABELS), "a pair .* got tuple of 3"),
        (((IMAGES, IMAGES), LABELS), r"train inputs are \(uint8 .*, uint8 .*\) but test inputs are uint8"),
        (({"x": IMAGES}, LABELS), r"train inputs are \{x: uint8 .*\} but test inputs are uint8"),
        (([IMAGES, IMAGES[0, 0]], LABELS), "list of 2 items of different shapes is no array"),
    ],
)
def test_what_is_no_pair_of_arrays_is_refused_by_name(train: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Dataset.from_arrays(train=train, test=(IMAGES, LABELS))
