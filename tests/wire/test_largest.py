"""The largest changes alone: bytes by hand, which travel and as what, and damaged sections."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from feddst.core import generator
from feddst.errors import OptionError, WireError
from feddst.wire import WireConfig, nominal_bits
from feddst.wire.largest import Largest, Largest8, Largest16, Largest32

TOP8, TOP16, TOP32 = Largest8(), Largest16(), Largest32()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
every = pytest.mark.parametrize("codec", [TOP8, TOP16, TOP32], ids=["top8", "top16", "top32"])

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 1e-45, -1e-45, 3e38])
"""Numbers that leave much to how ties are broken."""
lists = st.lists(floats, max_size=70) | st.lists(few, max_size=70)
shapes = st.lists(st.sampled_from([0, 1, 2, 7, 8, 9, 32, 33, 100, 400]), min_size=1, max_size=4)


def written(codec: Largest, *tensors: Tensor) -> bytes:
    data = codec.encode(tensors, generator(0, "test"))
    assert len(data) == codec.size([len(value) for value in tensors])
    return data


def sent(codec: Largest, *tensors: Tensor) -> list[Tensor]:
    return codec.decode(memoryview(written(codec, *tensors)), [len(value) for value in tensors])


def received(codec: Largest, rows: list[Tensor]) -> list[Tensor]:
    """What a device makes of clients side by side."""
    found = codec.received([value.to(DEVICE) for value in rows], [generator(0, "test")] * len(rows[0]))
    return [value.cpu() for value in found]


def drawn(counts: list[int], seed: int, clients: int = 1, kinds: int = 10**6) -> list[Tensor]:
    """Tensors [clients, n], with ties if there are few kinds of numbers."""
    draws = np.random.default_rng(seed)
    scale = np.float32(2.0 ** draws.integers(-60, 60))
    rows = [draws.integers(-kinds, kinds, (clients, n), endpoint=True).astype(np.float32) for n in counts]
    return [torch.from_numpy(values * scale) for values in rows]


def same(one: Tensor, other: Tensor) -> bool:
    """To the last bit."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


ONE_OF_TWO = torch.tensor([0, 0, 0, 0, 0, 0, 0, -4.0, 0])


def test_a_tensor_by_hand() -> None:
    # n = 9, k = 2, w = 1: positions 2 and 3 have low bits 0 1 and the rest 1 1, which is 011000 with ones at 1 + 0 and
    # 1 + 1 of 2 + 8/2 bits; up and down is 10. The scale is 2. Lowest bit first: 01011000 10.
    data = written(TOP8, torch.tensor([0, 0, 3.0, -1.0, 0, 0.5, 0, 0, 0]))
    assert data == bytes.fromhex("0040 1a01")
    assert TOP8.decode(memoryview(data), [9])[0].tolist() == [0, 0, 2, -2, 0, 0, 0, 0, 0]


def test_where_too_few_values_are_not_zero_the_last_is_repeated() -> None:
    # Position 7 twice: low bits 1 1, the rest 3 3 as 000110, down and down.
    assert written(TOP8, ONE_OF_TWO) == bytes.fromhex("8040 6300")
    assert sent(TOP8, ONE_OF_TWO)[0].tolist() == ONE_OF_TWO.tolist()


def test_tensors_share_bytes_and_scales_come_first() -> None:
    # Five zeros: w = 1, position 0 as 0 and 100, up. After the ten bits from above: 01011000 10|0 100 1, then a 0.
    first = torch.tensor([0, 0, 3.0, -1.0, 0, 0.5, 0, 0, 0])
    data = written(TOP8, first, torch.empty(0), torch.zeros(5))
    assert data == bytes.fromhex("0040 0000 1a49")
    assert not TOP8.decode(memoryview(data), [9, 0, 5])[2].any()


def test_bits_a_value() -> None:
    # For one in m: two bits where the position's bitmap has as many zeros as ones, log₂m low bits, and the sign.
    for name, bits in {"top8": 6 / 8, "top16": 7 / 16, "top32": 8 / 32}.items():
        assert bits < nominal_bits(name) < bits + 0.001


@every
@given(counts=st.tuples(st.integers(0, 5000), st.integers(0, 5000)))
def test_more_values_never_take_fewer_bytes(codec: Largest, counts: tuple[int, int]) -> None:
    # What bounds a section before its mask is known relies on it.
    assert codec.size([min(counts)]) <= codec.size([max(counts)])


@every
@given(values=lists)
def test_the_largest_travel_and_the_first_of_equal_ones(codec: Largest, values: list[float]) -> None:
    k = -(-len(values) // codec.one_in)
    order = sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))
    picked = [i for i in order[:k] if values[i]]
    mean = sum(Fraction(abs(values[i])) for i in picked) / max(len(picked), 1)
    (found,) = sent(codec, torch.tensor(values, dtype=torch.float32))
    # Half of a bfloat16's last place, and what is lost where magnitudes become steps and where numbers end.
    bound = mean / 256 + 2 * max((Fraction(abs(values[i])) for i in picked), default=Fraction(0)) / 2**30 + 2.0**-134
    for i, value in enumerate(found.tolist()):
        if i in picked:
            assert abs(abs(value) - mean) <= bound
            assert np.signbit(value) == np.signbit(values[i])
        else:
            assert value == 0
            assert not np.signbit(value)


@every
@settings(max_examples=60)
@given(
    counts=shapes, seed=st.integers(0, 2**32), clients=st.integers(1, 4), kinds=st.sampled_from([0, 1, 2, 20, 10**6])
)
def test_side_by_side_is_as_one_by_one(codec: Largest, counts: list[int], seed: int, clients: int, kinds: int) -> None:
    rows = drawn(counts, seed, clients, kinds)
    before = [value.clone() for value in rows]
    together = received(codec, rows)
    for client in range(clients):
        alone = sent(codec, *(value[client] for value in rows))
        assert all(same(all_[client], one) for all_, one in zip(together, alone, strict=True))
    turned = received(codec, [value.flip(0) for value in rows])
    assert all(same(one.flip(0), other) for one, other in zip(turned, together, strict=True))
    assert all(same(one, other) for one, other in zip(rows, before, strict=True))


@every
@given(values=lists.filter(len))
def test_any_numbers_arrive_alike_on_both_ways(codec: Largest, values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)
    (together,) = received(codec, [tensor[None]])
    assert same(together[0], sent(codec, tensor)[0])


@every
def test_the_scale_depends_on_no_order(codec: Largest) -> None:
    values = torch.from_numpy(np.random.default_rng(3).lognormal(0, 6, 20_000).astype(np.float32))
    orders = [torch.from_numpy(np.random.default_rng(i).permutation(20_000)) for i in range(8)]
    assert len({float(sent(codec, values[order])[0].max()) for order in orders}) == 1


@every
def test_the_mean_magnitude_errs_least(codec: Largest) -> None:
    values = torch.from_numpy(np.random.default_rng(5).standard_normal(4000).astype(np.float32))
    (found,) = sent(codec, values)
    errors = [float((values - found * factor).double().square().sum()) for factor in (0.98, 1.0, 1.02)]
    assert errors[1] == min(errors)
    assert errors[1] < float(values.double().square().sum())


@every
def test_the_largest_numbers_stay_finite(codec: Largest) -> None:
    (found,) = sent(codec, torch.full((64,), -torch.finfo(torch.float32).max))
    assert float(found.min()) == -255 * 2.0**120


@every
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused(codec: Largest, value: float) -> None:
    values = torch.ones(100)
    values[70] = value
    with pytest.raises(WireError, match="scale of a tensor is negative or not finite"):
        sent(codec, values)
    (found,) = received(codec, [torch.stack([torch.ones(100), values])])
    assert torch.isfinite(found[0]).all()
    assert not torch.isfinite(found[1]).all()


# Damaged sections.


def check_bytes(codec: Largest, data: bytes, counts: list[int]) -> bool:
    """Whether these bytes are accepted. Then they are what would be written for what they hold, if it is not 0."""
    try:
        found = codec.decode(memoryview(data), counts)
    except WireError:
        return False
    assert [len(value) for value in found] == counts
    assert all(torch.isfinite(value).all() for value in found)
    if all(value.any() for value in found if len(value)):
        assert written(codec, *found) == data
    return True


@every
@settings(max_examples=15)
@given(counts=shapes, seed=st.integers(0, 2**32), kinds=st.sampled_from([0, 1, 10**6]))
def test_a_bit_that_flips_is_refused_or_means_something_else(
    codec: Largest, counts: list[int], seed: int, kinds: int
) -> None:
    counts = [min(count, 100) for count in counts]
    data = written(codec, *(value[0] for value in drawn(counts, seed, kinds=kinds)))
    assert check_bytes(codec, data, counts)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        check_bytes(codec, bytes(damaged), counts)


@every
@given(counts=shapes, seed=st.integers(0, 2**32))
def test_any_bytes_are_finite_numbers_or_refused(codec: Largest, counts: list[int], seed: int) -> None:
    check_bytes(codec, np.random.default_rng(seed).bytes(codec.size(counts)), counts)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("807f 1a01", "scale of a tensor is negative or not finite"),
        ("c07f 1a01", "scale of a tensor is negative or not finite"),
        ("0080 1a01", "scale of a tensor is negative or not finite"),
        ("0040 0a01", "a tensor of 9 values comes with 1 positions, it must have 2"),
        ("0040 3a01", "a tensor of 9 values comes with 3 positions, it must have 2"),
        ("0040 1901", "the positions in a tensor do not rise"),  # 3, then 2
        ("0040 a201", "names position 9 of 9"),
        ("0040 1b01", "a position is repeated with another sign"),  # 3 twice
        ("0040 1a05", "the bits after the last sign are not zero"),
        ("0040 1a81", "the bits after the last sign are not zero"),
    ],
)
def test_what_cannot_have_been_written_is_refused(data: str, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        TOP8.decode(memoryview(bytes.fromhex(data)), [9])


def test_a_position_is_repeated_only_at_the_end() -> None:
    # n = 17, k = 3, w = 2: positions 1, 1, 3 in order 1 0, 1 0, 1 1, then 1110000, and up three times.
    data = (
        bytes.fromhex("803f") + np.packbits(list(map(int, "101011" + "1110000" + "111")), bitorder="little").tobytes()
    )
    assert len(data) == TOP8.size([17])
    with pytest.raises(WireError, match="do not rise"):
        TOP8.decode(memoryview(data), [17])


@pytest.mark.parametrize("name", ["top8", "top16", "top32"])
def test_a_broadcast_is_no_change(name: str) -> None:
    WireConfig(values=name).check()
    message = f"^wire.download must be one of float32, .*, q2, got '{name}', which carries changes alone$"
    with pytest.raises(OptionError, match=message):
        WireConfig(download=name).check()
