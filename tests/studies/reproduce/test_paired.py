from dataclasses import replace

import pytest

from feddst.studies.reproduce.paired import Difference, paired_difference, pairs
from feddst.studies.reproduce.record import Record


def test_two_seeds_have_the_interval_between_them() -> None:
    # Resamples of (1, 3) have the means 1, 2 and 3 with shares ¼, ½ and ¼: both tails of 2.5 % lie at the ends.
    found = paired_difference({0: 91.0, 1: 95.0}, {0: 90.0, 1: 92.0})
    assert found == Difference(2.0, 1.0, 3.0, 2)
    assert str(found) == "+2.00 [1.00, 3.00]"


def test_a_difference_that_is_always_the_same_has_no_width() -> None:
    found = paired_difference(dict.fromkeys(range(10), 90.0), dict.fromkeys(range(10), 90.5))
    assert found == Difference(-0.5, -0.5, -0.5, 10)
    assert str(found) == "−0.50 [−0.50, −0.50]"


def test_the_interval_is_that_of_the_binomial_distribution() -> None:
    # Ten seeds, five of them 1 and five 0: a resample's mean is Binomial(10, ½)/10. P(≤ 1) = 11/1024 = 1.1 %, and
    # P(≤ 2) = 56/1024 = 5.5 %: the 2.5 % percentile is 0.2, and by symmetry the other 0.8.
    found = paired_difference({seed: float(seed % 2) for seed in range(10)}, dict.fromkeys(range(10), 0.0))
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.2, 0.8))


def test_only_seeds_that_both_have_count() -> None:
    assert paired_difference({0: 1.0, 1: 5.0}, {1: 4.0, 2: 9.0}) == Difference(1.0, 1.0, 1.0, 1)
    assert str(paired_difference({1: 5.0}, {1: 4.0})) == "+1.00 (one seed)"
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def test_a_difference_of_nothing_has_no_minus() -> None:
    assert str(Difference(-0.001, -0.002, 0.001, 3)) == "+0.00 [0.00, 0.00]"


def test_the_pairs_of_a_table_and_of_a_sweep(by_hand: Record) -> None:
    everything = ("fedavgm", "fedprox", "randommask", "feddst", "feddst+fedprox")
    rows = tuple(replace(by_hand.rows[0], name=name) for name in everything)
    assert list(pairs(replace(by_hand, rows=rows))) == [
        ("feddst", "randommask"),
        ("feddst", "fedavgm"),
        ("feddst", "fedprox"),
        ("feddst+fedprox", "fedprox"),
        ("feddst+fedprox", "feddst"),
        ("randommask", "fedavgm"),
        ("fedprox", "fedavgm"),
        ("feddst+fedprox", "fedavgm"),
    ]
    assert list(pairs(replace(by_hand, compared=(("feddst", "fedavgm"),)))) == [("feddst", "fedavgm")]
    assert list(pairs(replace(by_hand, usual="feddst"))) == [("randommask", "feddst"), ("fedavgm", "feddst")]
