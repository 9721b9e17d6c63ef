"""Layer budgets: the paper's three networks at several sparsities, and exact totals everywhere."""

import math
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from feddst.core import Layer
from feddst.errors import ModelError
from feddst.models import ModelConfig, network, prunable_layers
from feddst.sparsity import Sparsity
from feddst.sparsity.distribution import Distribution

MNIST = prunable_layers(network(ModelConfig(name="mnist-cnn"), (1, 28, 28), 10))
CIFAR10 = prunable_layers(network(ModelConfig(name="cifar10-cnn"), (3, 32, 32), 10))
CIFAR100 = prunable_layers(network(ModelConfig(name="cifar100-cnn"), (3, 32, 32), 100))


@pytest.mark.parametrize(
    ("layers", "level", "kept"),
    [
        (MNIST, 0.8, [208, 396, 51246, 500]),
        (MNIST, 0.95, [52, 99, 12789, 148]),
        (CIFAR10, 0.8, [436, 735, 149660, 4683, 840]),
        (CIFAR10, 0.95, [108, 182, 37103, 1161, 535]),
        (CIFAR100, 0.5, [450, 1851, 377124, 12000]),
    ],
)
def test_erk_fixtures(layers: tuple[Layer, ...], level: float, kept: list[int]) -> None:
    assert list(Sparsity(level, "erk").budgets(layers).values()) == kept


@pytest.mark.parametrize(
    ("layers", "densities"), [(MNIST, [0.260, 0.191, 0.200, 0.286]), (CIFAR10, [0.229, 0.205, 0.200, 0.211, 0.286])]
)
def test_published_erk_scales_sparsity_instead_of_density(layers: tuple[Layer, ...], densities: list[float]) -> None:
    budgets = Sparsity(0.8, "erk-published").budgets(layers)
    assert [round(budgets[layer.name] / layer.size, 3) for layer in layers] == densities


def test_er_counts_channels_only() -> None:
    # Scores (in+out)/(in·out): 11/10 and 30/200. Densities ε·score with ε·(1.1·250 + 0.15·5000) = 0.1·5250 = 525:
    # ε = 525/1025, so 0.5634·250 = 140.85 and 0.07683·5000 = 384.15.
    assert list(Sparsity(0.9, "er").budgets(MNIST[:2]).values()) == [141, 384]


@pytest.mark.parametrize(
    ("layers", "level", "kept"),
    [
        # 13,088 weights: 250 and 500 are all that two layers have, 12,338 are left for two. 5,000 are dense.
        (MNIST, 0.95, [250, 5000, 7338, 500]),
        (MNIST, 0.98, [250, 2243, 2242, 500]),  # 5,235 − 750 = 4,485 for two, of which the largest takes what is left
        (CIFAR10, 0.95, [450, 2400, 25319, 10080, 840]),  # 39,089 in all
        (CIFAR10, 0.98, [450, 2400, 5972, 5973, 840]),  # 15,635 − 3,690 = 11,945 for two
    ],
)
def test_every_layer_gets_as_many_as_others_if_it_has_them(
    layers: tuple[Layer, ...], level: float, kept: list[int]
) -> None:
    assert list(Sparsity(level, "even").budgets(layers).values()) == kept


def test_a_layer_four_times_as_large_gets_twice_as_many() -> None:
    layers = [Layer("a", (10, 10)), Layer("b", (20, 20)), Layer("c", (40, 40))]
    assert Sparsity(0.9, "root").budgets(layers) == {"a": 30, "b": 60, "c": 120}
    # Of half, 1,050, the smallest layer would get 150: it is full, and the others have 950, as 1 : 2.
    assert Sparsity(0.5, "root").budgets(layers) == {"a": 100, "b": 317, "c": 633}


def test_the_largest_layer_absorbs_what_rounding_leaves() -> None:
    layers = [Layer("a", (3, 1)), Layer("b", (3, 1)), Layer("c", (9, 1))]
    # Half of 15 weights: round(7.5) = 8 in all. Alone, the layers round 1.5, 1.5 and 4.5 to 2, 2 and 4, half to even.
    assert Sparsity(0.5, "uniform").budgets(layers) == {"a": 2, "b": 2, "c": 4}
    # A fifth: 3 in all, but 0.6, 0.6 and 1.8 round to 1, 1 and 2.
    assert Sparsity(0.8, "uniform").budgets(layers) == {"a": 1, "b": 1, "c": 1}


def test_layers_too_small_for_the_published_erk_are_refused() -> None:
    with pytest.raises(ModelError, match="too small"):
        Sparsity(0.8, "erk-published").budgets([Layer("a", (2, 2))])


shapes = st.lists(st.lists(st.integers(1, 12), min_size=2, max_size=4).map(tuple), min_size=1, max_size=5)


@given(shapes, st.floats(0, 0.99), st.sampled_from(["uniform", "er", "erk", "root", "even"]))
def test_budgets_meet_the_total_exactly(dims: list[tuple[int, ...]], level: float, distribution: Distribution) -> None:
    layers = [Layer(str(i), shape) for i, shape in enumerate(dims)]
    try:
        budgets = Sparsity(level, distribution).budgets(layers)
    except ModelError:
        assume(False)
    assert sum(budgets.values()) == round((1 - level) * sum(map(math.prod, dims)))
    assert all(0 <= budgets[layer.name] <= layer.size for layer in layers)


@pytest.mark.parametrize("distribution", get_args(Distribution))
def test_no_sparsity_keeps_everything(distribution: Distribution) -> None:
    assert Sparsity(0.0, distribution).budgets(MNIST) == {layer.name: layer.size for layer in MNIST}


def test_a_model_with_nothing_to_prune_is_refused() -> None:
    with pytest.raises(ModelError, match="nothing to prune"):
        Sparsity(0.8).budgets([])
