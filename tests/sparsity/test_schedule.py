"""The readjustment timetable, with the values the paper gives for its ends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddst.sparsity import Timetable


@given(st.floats(0, 1, allow_subnormal=False), st.integers(2, 5000), st.sampled_from(["cosine", "linear", "constant"]))
def test_alpha_is_whole_in_round_one_and_gone_at_the_end(alpha: float, until: int, decay: str) -> None:
    table = Timetable(alpha=alpha, every=1, until=until, decay=decay)  # type: ignore[arg-type]
    assert table.share(1) == alpha
    assert all(table.share(r) == 0 for r in (until, until + 1, 10 * until))
    shares = [table.share(r) for r in range(1, min(until, 50))]
    assert shares == sorted(shares, reverse=True)


@given(st.floats(0, 1), st.integers(1, 5000))
def test_the_decay_would_reach_zero_just_after_the_end(alpha: float, until: int) -> None:
    for decay in ("cosine", "linear"):
        assert Timetable(alpha=alpha, until=until, decay=decay).decayed(until + 1) == pytest.approx(0, abs=1e-12)


def test_cosine_halfway() -> None:
    table = Timetable(alpha=0.05, every=10, until=200)
    assert table.share(101) == 0
    assert table.decayed(101) == pytest.approx(0.025)
    assert table.share(10) == 0.05 / 2 * (1 + math.cos(9 * math.pi / 200))


def test_rounds_of_the_paper_and_of_the_published_code() -> None:
    paper = Timetable(alpha=0.05, every=10, until=30)
    published = Timetable(alpha=0.05, every=10, until=30, counting="published", decay="constant")
    assert [r for r in range(1, 60) if paper.share(r)] == [10, 20]
    assert [r for r in range(1, 60) if published.share(r)] == [2, 12, 22]
    assert published.share(22) == 0.05


def test_drops_are_rounded_layer_by_layer() -> None:
    table = Timetable(alpha=0.05, every=1, until=10**6)
    assert table.drops(1, {"a": 208, "b": 396, "c": 9}) == {"a": 10, "b": 20, "c": 0}
    assert table.drops(1, {"c": 9}) == {}
    assert Timetable(every=10).drops(9, {"a": 1000}) == {}


def test_the_epoch_defaults_to_the_last() -> None:
    assert Timetable().epoch(10) == 10
    assert Timetable(after_epoch=5).epoch(10) == 5
