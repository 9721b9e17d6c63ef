"""Altered copies of training images: what they look like, who holds them, and that nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.core.batches import Batch
from feddst.data import DataConfig, Dataset, Federation, clients_of, federate, prepared
from feddst.data.augmentation import augmented, shifted, version
from feddst.errors import OptionError
from feddst.options import updated
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent
from feddst.studies.reproduce.study import StudyConfig

PARTITIONS = ["classes", "shards", "dirichlet", "iid"]


def small(count: int = 80, test: int = 16, shape: tuple[int, ...] = (1, 6, 6)) -> Dataset:
    draws = torch.Generator().manual_seed(4)
    labels = torch.arange(count + test) % 4
    images = labels.view(-1, *[1] * len(shape)) + torch.randn(count + test, *shape, generator=draws)
    return Dataset.from_arrays((images[:count], labels[:count]), (images[count:], labels[count:]), name="made-up")


def config(**changes: Any) -> DataConfig:
    return updated(DataConfig(clients=4, images_per_class=5), changes)


def move(image: Tensor, down: int, right: int, mirrored: bool = False) -> list[list[int]]:
    moved = shifted(image[None, None], torch.tensor([down]), torch.tensor([right]), torch.tensor([mirrored]))
    found: list[list[int]] = moved[0, 0].tolist()
    return found


def one(batch: Batch) -> Tensor:
    assert isinstance(batch, Tensor)
    return batch


SIX = torch.arange(36, dtype=torch.uint8).view(6, 6)
"""Rows 0 … 5, 6 … 11, and so on."""


def test_a_shift_reflects_at_the_border() -> None:
    assert [row[0] for row in move(SIX, down=2, right=0)] == [12, 6, 0, 6, 12, 18]
    assert [row[0] for row in move(SIX, down=-4, right=0)] == [24, 30, 24, 18, 12, 6]
    assert move(SIX, down=0, right=1)[0] == [1, 0, 1, 2, 3, 4]
    assert move(SIX, down=0, right=-3)[0] == [3, 4, 5, 4, 3, 2]
    assert move(SIX, down=1, right=-3)[1] == [3, 4, 5, 4, 3, 2]
    assert move(SIX, down=0, right=1, mirrored=True)[0] == [4, 5, 4, 3, 2, 1]
    assert move(SIX, down=0, right=0) == SIX.tolist()


def test_each_image_and_all_its_channels_go_their_own_way() -> None:
    images = torch.stack([torch.stack([SIX, SIX + 100]), torch.stack([SIX + 50, SIX + 150])])
    moved = shifted(images, torch.tensor([2, 0]), torch.tensor([0, 1]), torch.tensor([False, True]))
    assert moved.dtype == torch.uint8
    assert moved[0, 1, :, 0].tolist() == [112, 106, 100, 106, 112, 118]
    assert moved[1, 0, 0].tolist() == [54, 55, 54, 53, 52, 51]


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_the_first_versions_are_the_image_and_its_mirror_image(kind: torch.dtype) -> None:
    images = SIX.to(kind)[None, None]
    assert torch.equal(version(images, 0), images)
    assert version(images, 1)[0, 0, 0].tolist() == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("shift_only", [False, True])
def test_later_versions_are_shifts_of_either(shift_only: bool) -> None:
    """Every image is found among the 2 × 81 that may come of it; both kinds occur, and shifts of both signs."""
    one = torch.arange(121, dtype=torch.uint8).view(11, 11)  # of six pixels, some of these would look alike
    images = one.expand(200, 1, 11, 11)
    allowed = {
        tuple(map(tuple, move(one, down, right, mirrored))): (down, right, mirrored)
        for mirrored in (False, True)
        for down in range(-4, 5)
        for right in range(-4, 5)
    }
    assert len(allowed) == 162
    found = [allowed[tuple(map(tuple, image[0].tolist()))] for image in version(images, 2, shift_only)]
    assert {down for down, _, _ in found} == {right for _, right, _ in found} == set(range(-4, 5))
    assert {mirrored for _, _, mirrored in found} == ({False} if shift_only else {False, True})
    assert 60 < sum(mirrored for _, _, mirrored in found) < 140 or shift_only
    assert not torch.equal(version(images, 2, shift_only), version(images, 3, shift_only))
    assert torch.equal(version(images, 2, shift_only), version(images, 2, shift_only))


def test_without_mirroring_the_second_version_is_shifted() -> None:
    images = SIX.expand(200, 1, 6, 6)
    found = version(images, 1, shift_only=True)
    assert len({tuple(image.flatten().tolist()) for image in found}) > 50


def test_a_data_set_with_copies_has_the_same_test_images() -> None:
    data = small()
    copied = augmented(data, 3)
    assert (copied.versions, copied.originals, len(copied.train_labels)) == (3, 80, 240)
    assert torch.equal(copied.train_images[:80], data.train_images)
    assert torch.equal(copied.train_images[80:160], data.train_images.flip(3))
    assert torch.equal(copied.train_labels.view(3, 80), data.train_labels.expand(3, 80))
    assert copied.test_images is data.test_images
    assert augmented(copied, 3) is copied
    assert augmented(data, 1, shift_only=True) is data


def test_other_copies_take_the_place_of_those_there_are() -> None:
    data = small()
    other = augmented(augmented(data, 3), 2, shift_only=True)
    assert torch.equal(other.train_images, augmented(data, 2, shift_only=True).train_images)
    assert not torch.equal(other.train_images, augmented(data, 2).train_images)
    assert torch.equal(augmented(other, 1).train_images, data.train_images)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_clients_hold_their_images_and_all_versions_of_them(partition: str) -> None:
    plain = federate(config(partition=partition), 3, small())
    copied = federate(config(partition=partition, augmentation=3), 3, small())
    for client in range(4):
        mine, held = plain.partition.train[client], copied.client_data(client)
        assert copied.num_images(client) == len(held) == 3 * len(mine)
        assert torch.equal(one(held.targets), plain.dataset.train_labels[mine].repeat(3))
        expected = [version(plain.dataset.train_images, number)[mine] for number in range(3)]
        assert torch.equal(one(held.inputs), torch.cat(expected))
        assert np.array_equal(plain.partition.test[client], copied.partition.test[client])
    assert np.array_equal(copied.class_counts(), 3 * plain.class_counts())


def test_one_data_set_serves_all_seeds() -> None:
    asked = config(augmentation=3, held_out=20)
    data = prepared(small(), asked)
    assert federate(asked, 0, data).dataset is federate(asked, 1, data).dataset is data


def test_no_copy_of_an_image_that_is_held_out_is_trained_on() -> None:
    data, asked = small(), config(augmentation=3, held_out=20, images_per_class=4)
    fresh, late = prepared(data, asked), prepared(augmented(data, 3), asked)
    assert torch.equal(fresh.test_images, data.holding_out(20).test_images)
    assert torch.equal(fresh.train_images[:60], data.holding_out(20).train_images)
    assert (len(fresh.train_images), len(fresh.test_images)) == (180, 20)
    assert torch.equal(fresh.train_images, late.train_images)
    assert torch.equal(fresh.test_images, late.test_images)


def test_clients_that_are_divided_already_get_copies_too() -> None:
    data = small()
    pairs = [(data.train_images[at : at + 20], data.train_labels[at : at + 20]) for at in range(0, 80, 20)]
    given = Federation.from_clients(pairs, (data.test_images, data.test_labels))
    assert clients_of(config(), 0, given) is given
    copied = clients_of(config(augmentation=2), 0, given)
    assert clients_of(config(augmentation=2), 0, copied) is copied
    assert torch.equal(one(copied.client_data(1).inputs), torch.cat([pairs[1][0], pairs[1][0].flip(3)]))
    again = copied.augmented(3)
    assert again.num_images(1) == 60
    assert torch.equal(one(again.client_data(1).inputs)[:40], one(copied.client_data(1).inputs))
    assert clients_of(config(augmentation=2), 0, data).num_images(0) == 20


@pytest.mark.parametrize("divided", [False, True])
def test_copies_that_are_there_must_be_those_asked_for(divided: bool) -> None:
    asked = config(augmentation=3, shift_only=True)
    clients = federate(asked, 0, small())
    data = clients if divided else clients.dataset
    assert clients_of(asked, 0, data).dataset is clients.dataset
    with pytest.raises(OptionError, match=r"data\.augmentation must be 3, as made-up has it, got 1"):
        clients_of(config(), 0, data)
    with pytest.raises(OptionError, match=r"data\.shift_only must be True, as made-up has it, got False"):
        clients_of(config(augmentation=3), 0, data)


def test_a_description_says_it() -> None:
    said = "made-up, 4 clients, classes partition (2 × 5 images), 3 versions of each image, none mirrored, seed 0"
    assert federate(config(augmentation=3, shift_only=True), 0, small()).description == said


def test_a_study_says_it(tmp_path: Path) -> None:
    (tmp_path / "five.toml").write_text("caps = [1]\n[options]\ndata.augmentation = 5\n[rows.one]\n")
    assert StudyConfig(str(tmp_path / "five.toml")).describe_data() == (
        "MNIST, 400 clients (classes), 5 versions of each image"
    )


@pytest.mark.parametrize("shape", [(36,), (6, 6), (1, 4, 6), (3, 6, 4), (1, 6, 6, 6)])
def test_what_is_no_image_or_too_small_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(OptionError) as refused:
        federate(config(augmentation=2), 0, small(shape=shape))
    assert str(refused.value).startswith("data.augmentation must be 1 for made-up, got 2: ")
    assert str(refused.value).endswith(f"more than 4 pixels each way, and these inputs are {list(shape)}")


@pytest.mark.parametrize("augmentation", [0, 17])
def test_how_many_there_may_be(augmentation: int) -> None:
    said = rf"data\.augmentation must be in \[1, 16\], got {augmentation}"
    with pytest.raises(OptionError, match=said):
        federate(DataConfig(augmentation=augmentation), 0, small())
    with pytest.raises(OptionError, match=said):
        federate(config(), 0, small()).augmented(augmentation)


def test_engines_train_on_the_same_copies() -> None:
    """The reference engine is handed inputs, the stacked one positions in the data set."""
    options = {"rounds": 2, "cohort.size": 3, "local.epochs": 2, "local.batch": 8, "sparsity.level": 0.5}
    options |= {"data.clients": 4, "data.images_per_class": 5, "data.augmentation": 3, "engine.workers": 1}
    results = {}
    for kind in ("reference", "stacked", "native"):
        chosen = updated(RunConfig(), {**options, "method": "randommask", "engine.kind": kind})
        results[kind] = feddst.run(chosen, model=network, data=small(), watcher=Silent())
    plain = updated(
        RunConfig(), {**options, "method": "randommask", "data.augmentation": 1, "engine.kind": "reference"}
    )
    without = feddst.run(plain, model=network, data=small(), watcher=Silent())
    expected = results["reference"]
    for found in (results["stacked"], results["native"]):
        for name, value in expected.model.state_dict().items():
            assert float((found.model.state_dict()[name] - value).abs().max()) <= 1e-4, name
        assert found.rows[-1].flops_sparse == expected.rows[-1].flops_sparse
    assert expected.rows[-1].flops_sparse == pytest.approx(3 * without.rows[-1].flops_sparse)
    assert expected.rows[-1].upload_bytes == without.rows[-1].upload_bytes


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 4))
