"""The set coder: codes worked out by hand, round trips, damaged sections, and how near it is to the best."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddst.errors import WireError
from feddst.wire.bits import (
    BitReader,
    Members,
    bits_needed,
    fewest_bits,
    most_bits_needed,
    number,
    pack,
    read_sets,
    signed,
    unsigned,
    write_sets,
)


def members(*values: int) -> Members:
    return np.array(values, dtype=np.int64)


def draw_set(size: int, count: int, seed: int) -> Members:
    found: Members = np.sort(np.random.default_rng(seed).choice(size, count, replace=False))
    return found


def coded(*sets: tuple[int, Members]) -> str:
    """The bits that sets are written as."""
    return "".join(str(bit) for piece in write_sets(sets) for bit in piece)


def read_back(section: bytes, *sets: tuple[int, Members]) -> list[Members]:
    return read_sets(BitReader(section), [(size, len(found)) for size, found in sets])


@pytest.mark.parametrize(
    ("value", "bits"),
    [(0, "1"), (1, "010"), (2, "011"), (3, "00100"), (4, "00110"), (5, "00101"), (6, "00111"), (7, "0001000")],
)
def test_small_numbers_by_hand(value: int, bits: str) -> None:
    # 4 is written as 5 = 101₂: two zeros, the leading 1, then what follows it, lowest bit first: 1 and 0.
    assert "".join(map(str, number(value))) == bits


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2**40 - 2), max_size=20))
def test_numbers_come_back_one_after_another(values: list[int]) -> None:
    reader = BitReader(pack([number(value) for value in values]))
    assert [reader.number() for _ in values] == values
    reader.finish()


@pytest.mark.parametrize("section", [b"", bytes(1), bytes(5), bytes(8), pack([number(2**40)])])
def test_numbers_that_are_cut_short_or_too_long_are_refused(section: bytes) -> None:
    with pytest.raises(WireError, match="too long or cut short"):
        BitReader(section).number()


def test_a_number_whose_last_bits_are_missing_is_refused() -> None:
    with pytest.raises(WireError, match="ends early"):
        BitReader(pack([number(2**6)])[:1]).number()


def test_signed_numbers_by_hand() -> None:
    assert [signed(value) for value in (0, 1, -1, 2, -2, 3)] == [0, 1, 2, 3, 4, 5]


@settings(max_examples=50)
@given(st.integers(0, 2**50))
def test_signed_and_unsigned_are_inverse(value: int) -> None:
    assert signed(unsigned(value)) == value
    assert unsigned(signed(value)) == value
    assert unsigned(signed(-value)) == -value


def test_a_section_ends_with_less_than_a_byte_of_zeros() -> None:
    reader = BitReader(b"\x01")
    assert reader.take(1).tolist() == [1]
    reader.finish()
    for rest in (b"\x01\x00", b"\x03"):
        reader = BitReader(rest)
        reader.take(1)
        with pytest.raises(WireError, match="goes on after its end"):
            reader.finish()


def test_a_set_by_hand() -> None:
    # {3, 4, 15} of 16: the gaps are 3, 0, 10. 2^r ≥ 0.48·(13/3 + ½) = 2.32 gives r = 2: quotients 0, 0, 2, remainders
    # 3, 0, 2. Remainders lowest bit first: 11 00 01. Quotients in unary: 1 1 001.
    assert coded((16, members(3, 4, 15))) == "110001" + "11001"
    assert pack(write_sets([(16, members(3, 4, 15))])) == bytes([0b11100011, 0b100])


def test_a_set_that_lacks_few_numbers_is_coded_by_those() -> None:
    everything_else = np.setdiff1d(np.arange(16), [3, 4, 15])
    assert coded((16, everything_else)) == coded((16, members(3, 4, 15)))


def test_a_set_near_half_is_a_bitmap_and_comes_first() -> None:
    assert coded((4, members(1, 2))) == "0110"
    assert coded((16, members(3, 4, 15)), (4, members(1, 2))) == "0110" + "110001" + "11001"


def test_nothing_and_everything_cost_nothing() -> None:
    assert coded((0, members()), (7, members()), (7, np.arange(7))) == ""
    assert [found.tolist() for found in read_back(b"", (0, members()), (3, members()), (3, np.arange(3)))] == [
        [],
        [],
        [0, 1, 2],
    ]


any_set = st.integers(0, 300).flatmap(
    lambda size: st.tuples(
        st.just(size), st.integers(0, size).flatmap(lambda n: st.integers(0).map(lambda s: draw_set(size, n, s)))
    )
)


@settings(max_examples=50)
@given(st.lists(any_set, max_size=6))
def test_sets_come_back(sets: list[tuple[int, Members]]) -> None:
    found = read_back(pack(write_sets(sets)), *sets)
    assert all(np.array_equal(a, b) for a, (_, b) in zip(found, sets, strict=True))


@settings(max_examples=50)
@given(st.sets(st.integers(0, 40)))
def test_small_sets_of_any_pattern_come_back(chosen: set[int]) -> None:
    one = (41, members(*sorted(chosen)))
    assert read_back(pack(write_sets([one])), one)[0].tolist() == sorted(chosen)


@pytest.mark.parametrize(("size", "count"), [(100_000, 50), (100_000, 1), (1_000_000, 999_990), (99_999, 24_999)])
def test_large_sets_come_back(size: int, count: int) -> None:
    for found in (draw_set(size, count, 1), np.arange(count), np.arange(size - count, size)):
        assert np.array_equal(read_back(pack(write_sets([(size, found)])), (size, found))[0], found)


@pytest.mark.parametrize(("size", "count"), [(40, 3), (40, 37), (7, 0), (7, 7), (64, 16), (10, 5)])
def test_fewest_bits_is_what_the_best_set_takes(size: int, count: int) -> None:
    first, last = (size, members(*range(count))), (size, members(*range(size - count, size)))
    assert min(len(coded(first)), len(coded(last))) == fewest_bits(size, count)


def test_bits_needed_is_what_the_worst_set_takes() -> None:
    for size in range(13):
        for count in range(size + 1):
            worst = max(len(coded((size, members(*chosen)))) for chosen in combinations(range(size), count))
            assert bits_needed(size, count) == worst


@settings(max_examples=50)
@given(any_set)
def test_bits_needed_is_never_exceeded_and_never_more_than_a_bitmap(one: tuple[int, Members]) -> None:
    size, found = one
    assert fewest_bits(size, len(found)) <= len(coded(one)) <= bits_needed(size, len(found)) <= size


@settings(max_examples=50)
@given(st.integers(0, 3000), st.data())
def test_most_bits_needed_holds_for_all_smaller_sets(size: int, data: st.DataObject) -> None:
    most = data.draw(st.integers(0, size))
    assert most_bits_needed(size, most) == max(bits_needed(size, count) for count in range(most + 1))


@settings(max_examples=50)
@given(st.lists(any_set, min_size=1, max_size=3))
def test_every_truncation_is_refused(sets: list[tuple[int, Members]]) -> None:
    section = pack(write_sets(sets))
    for end in range(len(section)):
        with pytest.raises(WireError):
            read_back(section[:end], *sets)


@settings(max_examples=50)
@given(st.lists(any_set, min_size=1, max_size=3), st.sampled_from([b"\x00", b"\x01", b"\x80", b"\x00\x00"]))
def test_anything_after_the_end_is_refused(sets: list[tuple[int, Members]], more: bytes) -> None:
    with pytest.raises(WireError):
        read_back(pack(write_sets(sets)) + more, *sets)


@settings(max_examples=50)
@given(st.integers(0, 300), st.data(), st.binary(max_size=60))
def test_any_bytes_are_a_set_of_the_announced_size_or_refused(size: int, data: st.DataObject, section: bytes) -> None:
    count = data.draw(st.integers(0, size))
    try:
        (found,) = read_sets(BitReader(section), [(size, count)])
    except WireError:
        return
    assert len(np.unique(found)) == len(found) == count
    assert ((found >= 0) & (found < size)).all()


@pytest.mark.parametrize(
    ("section", "sets", "reason"),
    [
        ([0b0111], [(4, 2)], "a bitmap of 4 bits has 3 ones, 2 were announced"),
        ([0b11100011, 0b000], [(16, 3)], "as many positions"),
        ([0b11100011, 0b1100], [(16, 3)], "as many positions"),
        ([0b11100011, 0b1000], [(16, 3)], "position 19 of 16"),
        ([0b11110011, 0b100], [(16, 3)], "position 16 of 16"),
        ([0b11], [(16, 3)], "as many positions"),
        ([], [(16, 3)], "ends early: 6 bits are needed, 0 are there"),
    ],
)
def test_damaged_sections_by_hand(section: list[int], sets: list[tuple[int, int]], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        read_sets(BitReader(bytes(section)), sets)


@pytest.mark.parametrize("count", [30, 100, 1000])
@pytest.mark.parametrize("share", [0.001, 0.003, 0.01, 0.02, 0.04, 0.07, 0.11, 0.15, 0.2, 0.22, 0.25])
def test_random_sets_cost_at_most_a_tenth_more_than_they_must(share: float, count: int) -> None:
    size = math.ceil(count / share)
    best = math.log2(math.comb(size, count))
    for seed in range(3):
        assert len(coded((size, draw_set(size, count, seed)))) <= 1.1 * best
