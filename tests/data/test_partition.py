"""How images are divided: hand-made cases, and what must hold for every division."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from feddst.data import DataConfig, Dataset, Partition, StoredRecords, split
from feddst.data.partition import apportion, draw_classes, proportional_tests
from feddst.errors import DataError, OptionError

PROPERTY = settings(max_examples=60)
KINDS = ["classes", "shards", "dirichlet", "iid"]


def labelled(train: list[int], test: list[int], num_classes: int = 0) -> Dataset:
    """A data set with these labels; its images carry nothing."""
    num_classes = num_classes or max(train + test) + 1
    return Dataset(
        name="tiny",
        train=StoredRecords(torch.zeros(len(train), 1), torch.tensor(train)),
        test=StoredRecords(torch.zeros(len(test), 1), torch.tensor(test)),
        classes=tuple(str(label) for label in range(num_classes)),
    )


def balanced(num_classes: int, each: int, seed: int = 0) -> Dataset:
    """`each` training and 5 test images of each class, shuffled."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(num_classes), each))
    return labelled(labels.tolist(), list(range(num_classes)) * 5)


def same(one: Partition, two: Partition) -> bool:
    return all(map(np.array_equal, one.train + one.test, two.train + two.test))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Dataset, DataConfig, int]:
    """A small data set with uneven classes, a config and a seed."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    labels = draw(st.permutations(np.repeat(np.arange(len(sizes)), sizes).tolist()))
    config = DataConfig(
        clients=draw(st.integers(1, 8)),
        classes_per_client=draw(st.integers(1, 3)),
        images_per_class=draw(st.integers(1, 5)),
        beta=draw(st.sampled_from([1e-6, 0.1, 1.0, 1e6])),
        min_images=draw(st.integers(1, 3)),
    )
    tests = np.repeat(np.arange(len(sizes)), draw(st.integers(1, 7))).tolist()
    return labelled(labels, tests, len(sizes)), config, draw(st.integers(0, 2**40))


def divided(dataset: Dataset, config: DataConfig, seed: int) -> Partition:
    """The division, if there is one, with what must hold of every kind already checked."""
    try:
        partition = split(dataset, config, seed)
    except OptionError:
        assume(False)
    given_out = np.concatenate(partition.train)
    assert len(partition.train) == len(partition.test) == config.clients
    assert len(np.unique(given_out)) == len(given_out)
    assert all(indices.dtype == np.int64 for indices in partition.train + partition.test)
    assert all(len(indices) for indices in partition.train + partition.test)
    assert all(len(np.unique(indices)) == len(indices) for indices in partition.test)
    assert same(partition, split(dataset, config, seed))
    return partition


def held(dataset: Dataset, indices: np.ndarray) -> list[int]:
    return sorted({int(label) for label in dataset.train_labels[torch.tensor(indices)]})


def labels_of_tests(dataset: Dataset, indices: np.ndarray) -> list[int]:
    return [int(label) for label in dataset.test_labels[torch.tensor(indices)]]


@given(cases())
@PROPERTY
def test_classes_are_distinct_and_of_exact_size(case: tuple[Dataset, DataConfig, int]) -> None:
    dataset, config, seed = case
    for train, test in zip(*vars(divided(dataset, config, seed)).values(), strict=True):
        labels, counts = np.unique(dataset.train_labels[torch.tensor(train)], return_counts=True)
        assert len(labels) == config.classes_per_client
        assert set(counts) == {config.images_per_class}
        assert test.tolist() == np.flatnonzero(np.isin(dataset.test_labels, labels)).tolist()


def possible(slots: list[int], clients: int, each: int) -> bool:
    """Whether the classes suffice, found by always using those with the most left, which wastes the least."""
    left = sorted(slots, reverse=True)
    for _ in range(clients):
        if len(left) < each or left[each - 1] == 0:
            return False
        left[:each] = [slot - 1 for slot in left[:each]]
        left.sort(reverse=True)
    return True


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(0, 99),
)
@settings(max_examples=400)
def test_classes_are_found_whenever_that_is_possible(slots: list[int], clients: int, each: int, seed: int) -> None:
    config = DataConfig(clients=clients, classes_per_client=each)
    rng = np.random.default_rng(seed)
    if not possible(slots, clients, each):
        with pytest.raises(OptionError, match="but the classes have"):
            draw_classes(np.array(slots), config, rng)
        return
    chosen = draw_classes(np.array(slots), config, rng)
    assert all(len(set(row)) == each for row in chosen.tolist())
    assert (np.bincount(chosen.ravel(), minlength=len(slots)) <= slots).all()


def test_every_image_can_be_used() -> None:
    # 5 classes of 8 images, 10 clients of 2 classes and 2 images each: 40 of 40 images, no class to spare.
    for seed in range(20):
        partition = split(balanced(5, 8), DataConfig(clients=10, images_per_class=2), seed)
        assert sorted(np.concatenate(partition.train)) == list(range(40))


def test_classes_are_drawn_evenly() -> None:
    dataset = balanced(4, 1000)
    partition = split(dataset, DataConfig(clients=600, images_per_class=1), 3)
    pairs = [tuple(held(dataset, indices)) for indices in partition.train]
    # Six pairs, each expected 100 times with a standard deviation of 9.
    assert all(60 < pairs.count(pair) < 140 for pair in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


@given(cases())
@PROPERTY
def test_shards_are_consecutive_images_of_the_sorted_set(case: tuple[Dataset, DataConfig, int]) -> None:
    dataset, config, seed = case
    partition = divided(dataset, replace(config, partition="shards"), seed)
    ordered = np.argsort(dataset.train_labels.numpy(), kind="stable")
    place = np.argsort(ordered)
    size = config.images_per_class
    for train, test in zip(partition.train, partition.test, strict=True):
        shards = np.unique(place[train] // size)
        assert len(shards) == config.classes_per_client
        whole = np.concatenate([ordered[shard * size : (shard + 1) * size] for shard in shards])
        assert sorted(train) == sorted(whole)
        assert set(labels_of_tests(dataset, test)) == set(held(dataset, train))


def test_a_tenth_of_the_clients_hold_one_class_with_shards() -> None:
    dataset = balanced(10, 600)
    partition = split(dataset, DataConfig(partition="shards", clients=150), 0)
    # The second shard is of the first one's class with probability 29/299: 14.5 of 150, standard deviation 3.6.
    single = sum(len(held(dataset, indices)) == 1 for indices in partition.train)
    assert 3 <= single <= 27


@given(cases())
@PROPERTY
def test_dirichlet_gives_out_every_image_and_no_client_too_few(case: tuple[Dataset, DataConfig, int]) -> None:
    dataset, config, seed = case
    partition = divided(dataset, replace(config, partition="dirichlet"), seed)
    assert sorted(np.concatenate(partition.train)) == list(range(len(dataset.train_labels)))
    assert min(len(indices) for indices in partition.train) >= config.min_images


@given(cases())
@PROPERTY
def test_dirichlet_tests_follow_the_clients_proportions(case: tuple[Dataset, DataConfig, int]) -> None:
    dataset, config, seed = case
    partition = divided(dataset, replace(config, partition="dirichlet"), seed)
    classes = dataset.num_classes
    available = np.bincount(dataset.test_labels, minlength=classes)
    for train, test in zip(partition.train, partition.test, strict=True):
        share = np.bincount(dataset.train_labels[torch.tensor(train)], minlength=classes) / len(train)
        count = np.bincount(labels_of_tests(dataset, test), minlength=classes)
        assert (np.abs(count - share * len(test)) < 1).all()
        assert (share * (len(test) + 1) > available + 1e-9).any(), "one more image would fit"


def test_dirichlet_tests_by_hand() -> None:
    # Client 0 holds 3 of class 0 and 1 of class 1: with 6 and 10 test images, at most 8 follow 3 : 1, 6 and 2.
    # Client 1 holds class 1 only, so all 10. Client 2 holds 1 : 1 : 1, and class 2 has 4, so 12.
    counts = np.array([[3, 1, 0], [0, 5, 0], [2, 2, 2]])
    labels = np.repeat([0, 1, 2], [6, 10, 4])
    tests = proportional_tests(counts, labels, np.random.default_rng(0))
    assert [np.bincount(labels[test], minlength=3).tolist() for test in tests] == [[6, 2, 0], [0, 10, 0], [4, 4, 4]]


def test_smaller_beta_is_more_uneven() -> None:
    dataset = balanced(10, 100)
    held_classes = []
    for beta in (0.05, 0.5, 100.0):
        partition = split(dataset, DataConfig(partition="dirichlet", clients=10, beta=beta), 1)
        held_classes.append(np.mean([len(held(dataset, indices)) for indices in partition.train]))
    assert held_classes[0] < held_classes[1] < held_classes[2] == 10


@given(cases())
@PROPERTY
def test_iid_clients_have_exact_sizes(case: tuple[Dataset, DataConfig, int]) -> None:
    dataset, config, seed = case
    partition = divided(dataset, replace(config, partition="iid"), seed)
    each = config.classes_per_client * config.images_per_class
    for train, test in zip(partition.train, partition.test, strict=True):
        assert len(train) == each
        assert set(labels_of_tests(dataset, test)) == set(held(dataset, train))
        assert len(test) == sum(label in held(dataset, train) for label in dataset.test_labels.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_differ(kind: str) -> None:
    dataset = balanced(5, 40)
    config = DataConfig(partition=kind, clients=5, images_per_class=10)  # type: ignore[arg-type]
    assert same(split(dataset, config, 1), split(dataset, config, 1))
    assert not same(split(dataset, config, 1), split(dataset, config, 2))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(0, 1000))
@PROPERTY
def test_apportioned_numbers_are_near_their_shares(weights: list[float], total: int) -> None:
    assume(sum(weights) > 1e-3)
    shares = np.array(weights) / sum(weights)
    numbers = apportion(shares, total)
    assert numbers.sum() == total
    assert (np.abs(numbers - shares * total) < 1 + 1e-6).all()


def test_largest_remainders_by_hand() -> None:
    # 10 in shares of .25, .48, .27 is 2.5, 4.8, 2.7: 2 + 4 + 2, then the remainders .8 and .7.
    assert apportion(np.array([0.25, 0.48, 0.27]), 10).tolist() == [2, 5, 3]


@pytest.mark.parametrize("kind", ["classes", "shards", "iid"])
def test_too_few_images(kind: str) -> None:
    with pytest.raises(OptionError) as refused:
        split(balanced(10, 100), DataConfig(partition=kind), 0)  # type: ignore[arg-type]
    assert str(refused.value) == (
        "data.clients 400 × 40 examples = 16000 but the training set has 1000 examples; "
        "lower data.clients or data.images_per_class, or choose data.partition "
        f"{'unequal' if kind == 'iid' else 'dirichlet'}"
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            DataConfig(clients=1, classes_per_client=4, images_per_class=1),
            "data.classes_per_client must be at most 3, the number of classes, got 4",
        ),
        (
            DataConfig(clients=2, classes_per_client=2, images_per_class=5),
            "data.clients 2 × data.classes_per_client 2 = 4 lots of data.images_per_class 5, but the classes have 3; "
            "lower data.clients or data.images_per_class, or choose data.partition dirichlet",
        ),
        (
            DataConfig(partition="dirichlet", clients=10, min_images=3),
            "data.clients 10 × data.min_images 3 = 30 but the training set has 24 examples; "
            "lower data.clients or data.min_images",
        ),
        (DataConfig(clients=0), "data.clients must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_divided_is_refused(config: DataConfig, message: str) -> None:
    with pytest.raises(OptionError) as refused:
        split(balanced(3, 8), config, 0)
    assert str(refused.value) == message


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_without_test_images_is_refused(kind: str) -> None:
    dataset = labelled([0] * 6 + [1] * 6, [0, 0], 2)
    config = DataConfig(partition=kind, clients=12, classes_per_client=1, images_per_class=1, min_images=1)  # type: ignore[arg-type]
    # Every image goes to some client, those of class 1 too, of which there is no test image.
    with pytest.raises(DataError, match=r"client \d+ has no test images"):
        split(dataset, config, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_four_hundred_clients_take_well_under_a_second(kind: str) -> None:
    dataset = balanced(10, 6000)
    started = time.perf_counter()
    split(dataset, DataConfig(partition=kind), 0)  # type: ignore[arg-type]
    assert time.perf_counter() - started < 1
