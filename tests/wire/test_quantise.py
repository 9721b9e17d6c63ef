"""Quantisers: blocks by hand, no bias, the error they promise, and damaged blocks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from feddst.core import generator
from feddst.errors import WireError
from feddst.wire.quantise import BLOCK, Quantised2, Quantised4, Quantised8, Quantiser, block_scales, in_blocks

Q8, Q4, Q2 = Quantised8(), Quantised4(), Quantised2()
quantisers = pytest.mark.parametrize("codec", [Q8, Q4, Q2], ids=["q8", "q4", "q2"])


def sent(codec: Quantiser, *tensors: Tensor, seed: int = 0) -> list[Tensor]:
    data = codec.encode(tensors, generator(seed, "test"))
    return codec.decode(memoryview(data), [len(value) for value in tensors])


def steps_of(codec: Quantiser, values: Tensor) -> Tensor:
    """For each value the distance between two levels."""
    return (block_scales(in_blocks([values])) / codec.top).repeat_interleave(BLOCK)[: len(values)]


@pytest.mark.parametrize(
    ("codec", "values", "scale", "levels", "filling"),
    [
        (Q8, [127.0, -127.0, 3.0, 0.0], 0x42FE, "fe 00 82 7f", "7f"),
        (Q4, [7.0, -7.0, 3.0, 0.0], 0x40E0, "0e 7a", "77"),
        (Q2, [1.0, -1.0, 0.0, 1.0, -1.0], 0x3F80, "92 54", "55"),
    ],
)
def test_a_block_by_hand(codec: Quantiser, values: list[float], scale: int, levels: str, filling: str) -> None:
    # All values lie on levels, so nothing is left to chance. Levels count from −L: 7 of q4 is 14, 0 is 7, −7 is 0,
    # and two of them share a byte, the first in its lower half.
    data = codec.encode([torch.tensor(values)], generator(0, "test"))
    head = scale.to_bytes(2, "little") + bytes.fromhex(levels)
    assert data == head + bytes.fromhex(filling) * (codec.size([1]) - len(head))
    assert codec.decode(memoryview(data), [len(values)])[0].tolist() == values


def test_scales_come_first_and_tensors_share_no_block() -> None:
    data = Q2.encode([torch.tensor([1.0]), torch.empty(0), torch.tensor([-4.0])], generator(0, "test"))
    filling = b"\x55" * 15
    assert data == bytes.fromhex("803f 8040") + b"\x56" + filling + b"\x54" + filling


@quantisers
def test_zero_stays_zero(codec: Quantiser) -> None:
    values = torch.zeros(1000)
    assert not sent(codec, values)[0].any()
    values[::100] = 1.0
    assert not sent(codec, values)[0][values == 0].any()


def test_the_scale_is_the_largest_magnitude_rounded_up() -> None:
    blocks = torch.zeros(4, BLOCK)
    blocks[:, 5] = torch.tensor([1.0, -1.0, 1.001, -(1 + 2.0**-23)])
    assert block_scales(blocks).tolist() == [1.0, 1.0, 1.0078125, 1.0078125]
    assert block_scales(torch.zeros(1, BLOCK)).tolist() == [2.0**-100]


@quantisers
def test_a_largest_value_that_is_a_scale_arrives_as_it_is(codec: Quantiser) -> None:
    scales = torch.tensor([1.0, -1.5, 2.0**-100, 255 * 2.0**100])
    for value in scales:
        block = torch.linspace(-1, 1, 64) * value * 0.5
        block[17] = value
        found = sent(codec, block)[0][17]
        assert found == pytest.approx(value.item(), rel=2.0**-23)


@quantisers
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), exponent=st.integers(-20, 20), count=st.sampled_from([1, 63, 64, 65, 200]))
def test_no_value_moves_by_a_step_or_more(codec: Quantiser, seed: int, exponent: int, count: int) -> None:
    values = torch.from_numpy(np.random.default_rng(seed).standard_normal(count).astype(np.float32)) * 2.0**exponent
    error = (sent(codec, values, seed=seed)[0] - values).abs()
    assert (error <= steps_of(codec, values) * (1 + 1e-5)).all()


@quantisers
def test_values_below_the_smallest_scale_vanish_or_become_a_step_of_it(codec: Quantiser) -> None:
    found = sent(codec, torch.full((64,), 2.0**-140))[0]
    assert set(found.tolist()) <= {0.0, 2.0**-100 / codec.top}


def drawn_values() -> Tensor:
    """Three blocks: a bell, a bell with one far outlier, and evenly spread values."""
    draws = np.random.default_rng(11)
    bells = draws.standard_normal((2, BLOCK))
    bells[1, 0] = 12
    return torch.from_numpy(np.concatenate([*bells, np.linspace(-1, 1, BLOCK)]).astype(np.float32))


@quantisers
def test_rounding_has_no_bias(codec: Quantiser) -> None:
    values, repeats = drawn_values(), 4000
    found = torch.stack(sent(codec, *[values] * repeats)).double()
    step = steps_of(codec, values).double()
    up = torch.frac(values.double() / step + codec.top)
    uncertain = (up * (1 - up) > 0.01).nonzero().reshape(-1)
    deviation = step * (up * (1 - up)).sqrt() / repeats**0.5
    z = ((found.mean(dim=0) - values) / deviation)[uncertain]
    assert len(z) > 150
    assert z.abs().max() < 4.5
    assert abs(float(z.mean())) < 4.5 / len(z) ** 0.5
    assert float(z.square().mean()) == pytest.approx(1, abs=4.5 * (2 / len(z)) ** 0.5)


@quantisers
def test_every_round_is_drawn_anew(codec: Quantiser) -> None:
    values = drawn_values()
    first, again, other = (sent(codec, values, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@quantisers
def test_the_squared_error_is_the_one_promised(codec: Quantiser) -> None:
    values = drawn_values()
    error = torch.stack(sent(codec, *[values] * 4000)).double() - values
    assert float(error.square().mean()) == pytest.approx(codec.expected_squared_error([values]), rel=0.02)


def test_the_squared_error_by_hand() -> None:
    # q2: levels −1, 0, 1 in steps of 1. ¼ is up with probability ¼: ¼·(¾)² + ¾·(¼)² = 3/16. 0 and 1 do not move.
    values = torch.tensor([1.0, 0.25, 0.0, -0.25])
    assert Q2.expected_squared_error([values]) == pytest.approx(2 / 4 * 3 / 16)
    assert Q2.expected_squared_error([torch.tensor([1.0, 0.0]), torch.empty(0)]) == 0
    assert Q2.expected_squared_error([]) == 0


def test_more_bits_err_less() -> None:
    values = drawn_values()
    errors = [quantiser.expected_squared_error([values]) for quantiser in (Q8, Q4, Q2)]
    assert errors == sorted(errors)
    assert errors[0] < errors[1] / 100 < errors[2] / 1000


@quantisers
@pytest.mark.parametrize("scale", [0x7F80, 0x7FC0, 0x8000, 0xBF80, 0xFFFF])
def test_a_scale_that_is_negative_or_not_finite_is_refused(codec: Quantiser, scale: int) -> None:
    data = bytearray(codec.encode([drawn_values()], generator(0, "test")))
    data[2:4] = scale.to_bytes(2, "little")
    with pytest.raises(WireError, match="scale of a block is negative or not finite"):
        codec.decode(memoryview(data), [3 * BLOCK])


@quantisers
def test_the_largest_scale_is_still_a_number(codec: Quantiser) -> None:
    data = bytearray(codec.encode([torch.ones(BLOCK)], generator(0, "test")))
    data[:2] = (0x7F7F).to_bytes(2, "little")
    (found,) = codec.decode(memoryview(data), [BLOCK])
    assert torch.isfinite(found).all()


@quantisers
@pytest.mark.parametrize("place", [0, 70])
def test_a_level_beyond_the_highest_is_refused(codec: Quantiser, place: int) -> None:
    data = bytearray(codec.encode([torch.zeros(128)], generator(0, "test")))
    data[4 + place * codec.bits // 8] = 0xFF
    with pytest.raises(WireError, match=f"a level is .*, beyond the highest, {2 * codec.top}"):
        codec.decode(memoryview(data), [128])


@quantisers
@pytest.mark.parametrize("byte", [0, 1])
def test_filling_that_is_not_zero_is_refused(codec: Quantiser, byte: int) -> None:
    counts = [BLOCK - 8, BLOCK]
    data = bytearray(codec.encode([torch.ones(n) for n in counts], generator(0, "test")))
    codec.decode(memoryview(data), counts)
    data[4 + (BLOCK - 8) * codec.bits // 8 + byte] ^= 1
    with pytest.raises(WireError, match="not filled with zeros"):
        codec.decode(memoryview(data), counts)


@quantisers
def test_a_scale_of_zero_does_not_hide_filling_that_is_not_zero(codec: Quantiser) -> None:
    data = bytearray(codec.encode([torch.ones(1)], generator(0, "test")))
    data[:2] = bytes(2)
    assert codec.decode(memoryview(data), [1])[0].tolist() == [0]
    data[-1] ^= 1
    with pytest.raises(WireError, match="not filled with zeros"):
        codec.decode(memoryview(data), [1])


@quantisers
@settings(max_examples=40)
@given(section=st.binary(min_size=66, max_size=66))
def test_any_bytes_are_finite_numbers_or_refused(codec: Quantiser, section: bytes) -> None:
    try:
        (found,) = codec.decode(memoryview(section)[: codec.size([BLOCK])], [BLOCK])
    except WireError:
        return
    assert found.shape == (BLOCK,)
    assert torch.isfinite(found).all()
