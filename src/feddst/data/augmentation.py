"""Augmentation: altered versions of training images, mirrored and shifted ones, for clients to train on as well.

They are made once, of all training images and before any partition, so that every engine and all seeds of a study share
them. `n` versions take `n` times the memory.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from feddst.core.keys import generator
from feddst.data.dataset import Dataset
from feddst.data.records import StoredRecords
from feddst.errors import OptionError

FARTHEST = 4
"""Pixels by which a version is shifted at most, up or down and left or right."""


def augmented(dataset: Dataset, versions: int, shift_only: bool = False) -> Dataset:
    """`dataset` with `versions` versions of each training image in all; test images are unchanged.

    The random choices are the same for every run. If `dataset` has other versions, these replace them.
    """
    if dataset.versions == versions and (versions == 1 or dataset.shift_only == shift_only):
        return dataset
    records = _images(dataset, versions)
    images, labels = dataset.train_images[: dataset.originals], dataset.train_labels[: dataset.originals]
    made = images.new_empty((versions, *images.shape))
    for number in range(versions):
        made[number] = version(images, number, shift_only)
    train = replace(records, inputs=made.flatten(0, 1), targets=labels.repeat(versions, *[1] * (labels.dim() - 1)))
    owners = None if dataset.owners is None else (np.tile(dataset.owners[0], versions), dataset.owners[1])
    return replace(dataset, train=train, owners=owners, versions=versions, shift_only=shift_only)


def version(images: Tensor, number: int, shift_only: bool = False) -> Tensor:
    """Version 0 of images [N, C, H, W] is unchanged; version 1 is mirrored.

    Every other version is mirrored at random, then shifted at random. With `shift_only` none is mirrored, and version 1
    is shifted too.
    """
    if number == 0:
        return images
    if number == 1 and not shift_only:
        return images.flip(3)
    draws = generator(0, "copies", number)
    down, right = torch.from_numpy(draws.integers(-FARTHEST, FARTHEST + 1, (2, len(images))))
    mirrored = torch.from_numpy(draws.random(len(images)) < 0.5)
    return shifted(images, down, right, mirrored & (not shift_only))


def shifted(images: Tensor, down: Tensor, right: Tensor, mirrored: Tensor) -> Tensor:
    """Images [N, C, H, W], mirrored where `mirrored` [N], then moved by `down` and `right` [N] pixels.

    Pixels from beyond an edge are reflected at the last row or column.
    """
    height, width = images.shape[2:]
    rows = _reflected(torch.arange(height) - down[:, None], height)
    columns = _reflected(torch.arange(width) - right[:, None], width)
    columns = torch.where(mirrored[:, None], width - 1 - columns, columns)
    moved = images.gather(2, rows[:, None, :, None].expand_as(images))
    return moved.gather(3, columns[:, None, None, :].expand_as(images))


def _reflected(places: Tensor, size: int) -> Tensor:
    """Places beyond either end of `size` pixels, reflected at the last pixel."""
    return size - 1 - (size - 1 - places.abs()).abs()


def _images(dataset: Dataset, versions: int) -> StoredRecords:
    """The training images; raises `OptionError` if there is nothing to alter."""
    records = dataset.train
    shape = (
        records.inputs.shape[1:] if isinstance(records, StoredRecords) and isinstance(records.inputs, Tensor) else ()
    )
    if isinstance(records, StoredRecords) and (versions == 1 or (len(shape) == 3 and min(shape[1:]) > FARTHEST)):
        return records
    raise OptionError(
        f"data.augmentation must be 1 for {dataset.name}, got {versions}: what is altered are images "
        f"[channels, height, width] with more than {FARTHEST} pixels each way, and these inputs are "
        f"{list(shape) or 'others'}"
    )
