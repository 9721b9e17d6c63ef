"""How the images are divided among clients: which ones each trains on, and which it is tested on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from feddst.core.examples import labels_in
from feddst.core.keys import generator
from feddst.data.config import DataConfig
from feddst.data.dataset import Dataset
from feddst.errors import DataError, OptionError

Indices: TypeAlias = npt.NDArray[np.int64]

_LOWER = "lower data.clients or data.images_per_class, or choose data.partition "


@dataclass(frozen=True, eq=False)
class Partition:
    """For each client, the positions of its training images and of its test images, int64 [n]."""

    train: tuple[Indices, ...]
    test: tuple[Indices, ...]


def split(dataset: Dataset, config: DataConfig, seed: int) -> Partition:
    """Divide the images of `dataset` among clients as `config` says; the result depends on the seed alone.

    Altered versions go to the client that holds the image, and change nothing else.
    """
    config.check()
    rng = generator(seed, "partition")
    if config.partition == "owner":
        return by_owner(dataset, config, rng)
    if not dataset.classes and config.partition in BY_CLASS:
        raise OptionError(
            f"data.partition must be iid, unequal or owner for {dataset.name}, got {config.partition!r}: "
            "its targets are no classes to divide by"
        )
    # Where there are no classes, all examples are of one.
    classes = max(1, dataset.num_classes)
    labels, test_labels = (
        labels_in(records.targets) if dataset.classes else np.zeros(len(records), np.int64)
        for records in (dataset.train, dataset.test)
    )
    labels = labels[: dataset.originals]
    train = TRAIN_SPLITS[config.partition](labels, classes, config, rng)
    counts = count_classes(labels, train, classes)
    if config.partition == "dirichlet":
        tests = proportional_tests(counts, test_labels, rng)
    else:
        tests = held_class_tests(counts, test_labels)
    return Partition(all_versions(dataset, train), tests)


def by_owner(dataset: Dataset, config: DataConfig, rng: np.random.Generator) -> Partition:
    """Each client is one owner, with its own training and test examples; `clients` of them, drawn at random."""
    if dataset.owners is None:
        raise OptionError(
            f"data.partition must not be owner for {dataset.name}: it does not say to whom its examples belong "
            "(owners=… of Dataset.of)"
        )
    train, test = dataset.owners[0][: dataset.originals], dataset.owners[1]
    there = np.intersect1d(train, test)
    if config.clients > len(there):
        raise OptionError(
            f"data.clients must be at most {len(there)} for {dataset.name}, which has so many owners with training and "
            f"test examples, got {config.clients}"
        )
    chosen = np.sort(rng.permutation(there)[: config.clients])
    mine = all_versions(dataset, _of_each(train, chosen))
    return Partition(mine, tuple(_of_each(test, chosen)))


def _of_each(owners: Indices, chosen: Indices) -> list[Indices]:
    """The positions of each chosen owner's examples."""
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], chosen, side="left")
    ends = np.searchsorted(owners[order], chosen, side="right")
    return [np.sort(order[start:end]) for start, end in zip(starts, ends, strict=True)]


def all_versions(dataset: Dataset, train: Sequence[Indices]) -> tuple[Indices, ...]:
    """For each client, the positions of all versions of its images; train: the originals' positions."""
    firsts = np.arange(dataset.versions)[:, None] * dataset.originals
    return tuple((firsts + images).ravel() for images in train)


def by_classes(labels: Indices, num_classes: int, config: DataConfig, rng: np.random.Generator) -> tuple[Indices, ...]:
    """The paper's text: `classes_per_client` distinct classes a client, `images_per_class` images of each."""
    _check_enough(labels, config)
    if config.classes_per_client > num_classes:
        raise OptionError(
            f"data.classes_per_client must be at most {num_classes}, the number of classes, "
            f"got {config.classes_per_client}"
        )
    size = config.images_per_class
    slots = np.bincount(labels, minlength=num_classes) // size
    owners = draw_classes(slots, config, rng)
    given = np.empty((config.clients, config.classes_per_client, size), np.int64)
    for label in range(num_classes):
        clients, places = np.nonzero(owners == label)
        images = rng.permutation(np.flatnonzero(labels == label))
        given[clients, places] = images[: len(clients) * size].reshape(-1, size)
    return tuple(np.sort(given.reshape(config.clients, -1), axis=1))


def draw_classes(slots: Indices, config: DataConfig, rng: np.random.Generator) -> Indices:
    """Each client's distinct classes, int64 [clients, classes_per_client]; class k at most `slots[k]` times.

    They are drawn uniformly from those that remain, unless too few would be left for the next clients.
    """
    clients, each = config.clients, config.classes_per_client
    usable = int(np.minimum(slots, clients).sum())
    if usable < clients * each:
        raise OptionError(
            f"data.clients {clients} × data.classes_per_client {each} = {clients * each} lots of "
            f"data.images_per_class {config.images_per_class}, but the classes have {usable}; {_LOWER}dirichlet"
        )
    slots = slots.copy()
    chosen = np.empty((clients, each), np.int64)
    for client in range(clients):
        left = clients - client
        # A client uses a class at most once. So a class with `left` slots or more wastes one slot for each
        # client without it. The division stays possible while the spare slots cover this.
        spare = int(np.minimum(slots, left).sum()) - left * each
        order = rng.permutation(len(slots))
        plenty = order[slots[order] >= left]
        forced = plenty[: max(len(plenty) - spare, 0)]
        free = order[(slots[order] > 0) & ~np.isin(order, forced)]
        chosen[client] = np.concatenate([forced, free])[:each]
        slots[chosen[client]] -= 1
    return chosen


def by_shards(labels: Indices, num_classes: int, config: DataConfig, rng: np.random.Generator) -> tuple[Indices, ...]:
    """The published code: images sorted by label and cut into shards, some random shards a client."""
    _check_enough(labels, config)
    size, each = config.images_per_class, config.classes_per_client
    shards = len(labels) // size
    ordered = np.argsort(labels, kind="stable")[: shards * size].reshape(shards, size)
    drawn = rng.permutation(shards)[: config.clients * each]
    return tuple(np.sort(ordered[drawn].reshape(config.clients, -1), axis=1))


def by_dirichlet(
    labels: Indices, num_classes: int, config: DataConfig, rng: np.random.Generator
) -> tuple[Indices, ...]:
    """Every image given out, each class in proportions drawn from Dirichlet(beta) over the clients."""
    _check_fill(labels, config)
    owner = np.empty(len(labels), np.int64)
    for label in range(num_classes):
        images = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(config.clients, config.beta))
        owner[images] = np.repeat(np.arange(config.clients), apportion(shares, len(images)))
    return _owned(owner, config, rng)


def by_chance(labels: Indices, num_classes: int, config: DataConfig, rng: np.random.Generator) -> tuple[Indices, ...]:
    """`classes_per_client` × `images_per_class` images a client, drawn from all of them."""
    _check_enough(labels, config)
    each = config.classes_per_client * config.images_per_class
    drawn = rng.permutation(len(labels))[: config.clients * each]
    return tuple(np.sort(drawn.reshape(config.clients, each), axis=1))


def by_size(labels: Indices, num_classes: int, config: DataConfig, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Every example given out at random, to clients whose sizes are drawn from Dirichlet(beta)."""
    _check_fill(labels, config)
    sizes = apportion(rng.dirichlet(np.full(config.clients, config.beta)), len(labels))
    owner = np.empty(len(labels), np.int64)
    owner[rng.permutation(len(labels))] = np.repeat(np.arange(config.clients), sizes)
    return _owned(owner, config, rng)


BY_CLASS = frozenset({"classes", "shards", "dirichlet"})
"""The partitions that divide by class."""

TRAIN_SPLITS: dict[str, Callable[[Indices, int, DataConfig, np.random.Generator], tuple[Indices, ...]]] = {
    "classes": by_classes,
    "shards": by_shards,
    "dirichlet": by_dirichlet,
    "iid": by_chance,
    "unequal": by_size,
}


def held_class_tests(counts: Indices, test_labels: Indices) -> tuple[Indices, ...]:
    """For each client, all test images of the classes it holds; `counts` is [clients, classes]."""
    shared: dict[bytes, Indices] = {}
    tests = []
    for client, held in enumerate(counts > 0):
        key = held.tobytes()
        if key not in shared:
            shared[key] = np.flatnonzero(held[test_labels])
        if not len(shared[key]):
            raise DataError(f"client {client} has no test images: none of its classes is in the test set")
        tests.append(shared[key])
    return tuple(tests)


def proportional_tests(counts: Indices, test_labels: Indices, rng: np.random.Generator) -> tuple[Indices, ...]:
    """For each client, the largest test set with the class proportions of `counts` [clients, classes]."""
    pools = [np.flatnonzero(test_labels == label) for label in range(counts.shape[1])]
    tests = []
    for client, count in enumerate(counts):
        held = np.flatnonzero(count)
        size = min(len(pools[label]) * int(count.sum()) // int(count[label]) for label in held)
        if size == 0:
            absent = next(label for label in held if not len(pools[label]))
            raise DataError(f"client {client} has no test images: it holds class {absent}, which the test set lacks")
        wanted = apportion(count[held] / count.sum(), size)
        drawn = [rng.choice(pools[label], n, replace=False) for label, n in zip(held, wanted, strict=True) if n]
        tests.append(np.sort(np.concatenate(drawn)))
    return tuple(tests)


def apportion(shares: npt.NDArray[np.float64], total: int) -> Indices:
    """Whole numbers that sum to `total`, each within one of its share of it (largest remainders)."""
    exact = shares / shares.sum() * total
    whole: Indices = np.floor(exact).astype(np.int64)
    missing = total - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:missing]] += 1
    return whole


def count_classes(labels: Indices, clients: Sequence[Indices], num_classes: int) -> Indices:
    """How many images of each class each client holds, int64 [clients, classes]."""
    counts: Indices = np.stack([np.bincount(labels[indices], minlength=num_classes) for indices in clients])
    return counts


def _check_enough(labels: Indices, config: DataConfig) -> None:
    each = config.classes_per_client * config.images_per_class
    instead = "dirichlet" if config.partition in BY_CLASS else "unequal"
    if config.clients * each > len(labels):
        raise OptionError(
            f"data.clients {config.clients} × {each} examples = {config.clients * each} "
            f"but the training set has {len(labels)} examples; {_LOWER}{instead}"
        )


def _check_fill(labels: Indices, config: DataConfig) -> None:
    if config.clients * config.min_images > len(labels):
        raise OptionError(
            f"data.clients {config.clients} × data.min_images {config.min_images} = "
            f"{config.clients * config.min_images} but the training set has {len(labels)} examples; "
            "lower data.clients or data.min_images"
        )


def _owned(owner: Indices, config: DataConfig, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Each client's examples, from the client of each example; every client has `min_images` in the end."""
    _fill_up(owner, config, rng)
    ends = np.cumsum(np.bincount(owner, minlength=config.clients))[:-1]
    return tuple(np.split(np.argsort(owner, kind="stable"), ends))


def _fill_up(owner: Indices, config: DataConfig, rng: np.random.Generator) -> None:
    """Move images from the largest clients, in place, until every client has `min_images`."""
    sizes = np.bincount(owner, minlength=config.clients)
    for client in np.flatnonzero(sizes < config.min_images):
        while sizes[client] < config.min_images:
            donor = int(np.argmax(sizes))
            owner[rng.choice(np.flatnonzero(owner == donor))] = client
            sizes[donor] -= 1
            sizes[client] += 1
