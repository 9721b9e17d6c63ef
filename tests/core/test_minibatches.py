"""Minibatches: every image once an epoch, no lone last image, fixed or drawn anew."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feddst.core import LocalTraining, generator, minibatches
from feddst.core.minibatches import orders


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 3), st.sampled_from(["shuffled", "fixed"]))
def test_every_epoch_sees_every_image_once(images: int, batch: int, epochs: int, order: str) -> None:
    local = LocalTraining(epochs=epochs, batch=batch, order=order)  # type: ignore[arg-type]
    plan = minibatches(images, local, seed=3, round=5, client=7)
    assert len(plan) == epochs
    for batches in plan:
        assert sorted(np.concatenate(batches).tolist()) == list(range(images))
        sizes = [len(indices) for indices in batches]
        assert all(size == batch for size in sizes[:-1])
        assert sizes[-1] <= batch + 1
        assert sizes[-1] > 1 or batch == 1 or images == 1


def test_sizes_are_those_of_the_paper() -> None:
    [batches] = minibatches(40, LocalTraining(epochs=1, batch=32), seed=0, round=1, client=0)
    assert [len(indices) for indices in batches] == [32, 8]


def test_a_last_image_alone_joins_the_minibatch_before() -> None:
    [batches] = minibatches(33, LocalTraining(epochs=1, batch=32), seed=0, round=1, client=0)
    assert [len(indices) for indices in batches] == [33]


def test_fixed_minibatches_stay_for_the_whole_run_and_shuffled_ones_do_not() -> None:
    def orders(order: str) -> list[list[int]]:
        local = LocalTraining(epochs=2, batch=8, order=order)  # type: ignore[arg-type]
        rounds = [minibatches(20, local, seed=0, round=r, client=1) for r in (1, 2)]
        return [np.concatenate(batches).tolist() for plan in rounds for batches in plan]

    fixed, shuffled = orders("fixed"), orders("shuffled")
    assert all(order == fixed[0] for order in fixed)
    assert len({tuple(order) for order in shuffled}) == 4


@given(st.integers(1, 70), st.integers(1, 4))
def test_an_epochs_order_is_a_permutation_of_its_own(images: int, epochs: int) -> None:
    local = LocalTraining(epochs=epochs)
    draws = generator(3, "minibatches", 2, 5)
    expected = [draws.permutation(images).tolist() for _ in range(epochs)]
    assert orders(images, local, 3, 2, 5).tolist() == expected
