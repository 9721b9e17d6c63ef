"""Plain number formats: every bit of float32, the nearest 16-bit number, and what every codec has in common."""

import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from feddst.core import generator, register
from feddst.errors import OptionError, WireError
from feddst.wire import CODECS, ValueCodec, WireConfig
from feddst.wire.codecs import broadcast_codecs, codec_coded, codec_named
from feddst.wire.values import BFloat16, Float16, Float32

codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
codecs_of_all_values = pytest.mark.parametrize("codec", broadcast_codecs().values(), ids=list(broadcast_codecs()))
patterns = st.lists(st.integers(0, 2**32 - 1), max_size=40)
numbers = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40)


def sent(codec: ValueCodec, *tensors: Tensor) -> list[Tensor]:
    """The tensors as they arrive."""
    data = codec.encode(tensors, generator(0, "test"))
    counts = [len(value) for value in tensors]
    assert len(data) == codec.size(counts)
    return codec.decode(memoryview(data), counts)


def from_bits(bits: list[int]) -> Tensor:
    return torch.from_numpy(np.array(bits, dtype=np.uint32).view(np.float32))


def to_bits(values: Tensor) -> list[int]:
    bits: list[int] = values.numpy().view(np.uint32).tolist()
    return bits


@given(patterns, patterns)
def test_float32_keeps_every_bit(first: list[int], second: list[int]) -> None:
    # Any pattern: negative zero, denormals, infinities and all the NaNs are among them.
    assert [to_bits(value) for value in sent(Float32(), from_bits(first), from_bits(second))] == [first, second]


def test_float32_is_little_endian() -> None:
    data = Float32().encode([torch.tensor([1.0, -0.0]), torch.tensor([2.0**-149])], generator(0, "test"))
    assert data == bytes.fromhex("0000803f" + "00000080" + "01000000")


@pytest.mark.parametrize(
    ("codec", "value", "arrives"),
    [
        (Float16(), 1.0, 1.0),
        (Float16(), -0.0, -0.0),
        (Float16(), 0.1, 0.0999755859375),
        (Float16(), 2049.0, 2048.0),  # halfway between 2048 and 2050: to the even one
        (Float16(), 2051.0, 2052.0),
        (Float16(), 2.0**-24, 2.0**-24),  # the smallest denormal
        (Float16(), 65519.0, 65504.0),
        (Float16(), 65520.0, 65504.0),  # would be rounded to infinity
        (Float16(), -3e38, -65504.0),
        (BFloat16(), 1.0, 1.0),
        (BFloat16(), -0.0, -0.0),
        (BFloat16(), 257.0, 256.0),  # halfway between 256 and 258
        (BFloat16(), 259.0, 260.0),
        (BFloat16(), 2.0**-133, 2.0**-133),  # the smallest denormal
        (BFloat16(), 3.4e38, 255 * 2.0**120),  # would be rounded to infinity
        (BFloat16(), -3.4e38, -255 * 2.0**120),
    ],
)
def test_sixteen_bits_by_hand(codec: ValueCodec, value: float, arrives: float) -> None:
    (found,) = sent(codec, torch.tensor([value]))
    assert struct.pack("<f", found.item()) == struct.pack("<f", arrives)


@given(numbers)
def test_float16_is_the_nearest_within_its_range(values: list[float]) -> None:
    nearest = np.clip(np.array(values, dtype=np.float32), -65504, 65504).astype(np.float16).astype(np.float32)
    assert to_bits(sent(Float16(), torch.tensor(values))[0]) == to_bits(torch.from_numpy(nearest))


@given(numbers)
def test_bfloat16_is_the_nearest_within_its_range(values: list[float]) -> None:
    nearest = []
    for bits in to_bits(torch.tensor(values)):
        upper = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # half to even, on the upper 16 bits
        nearest.append((upper - 1 if upper & 0x7FFF == 0x7F80 else upper) << 16)
    assert to_bits(sent(BFloat16(), torch.tensor(values))[0]) == nearest


@codecs_of_all_values
@settings(max_examples=40)
@given(counts=st.lists(st.sampled_from([0, 1, 2, 63, 64, 65, 130]), max_size=5), seed=st.integers(0, 2**32))
def test_tensors_keep_their_lengths_and_do_not_mix(codec: ValueCodec, counts: list[int], seed: int) -> None:
    draws = np.random.default_rng(seed)
    # Tensor i holds 2^i or nothing, which all of these codecs carry exactly.
    tensors = [torch.from_numpy((draws.random(n) < 0.5) * np.float32(2**i)) for i, n in enumerate(counts)]
    before = [value.clone() for value in tensors]
    found = sent(codec, *tensors)
    assert [len(value) for value in found] == counts
    assert all(value.dtype is torch.float32 for value in found)
    assert all(torch.equal(a, b) for a, b in zip(found, before, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))


def test_sizes_by_hand() -> None:
    counts = [0, 1, 64, 65]
    sizes = {name: codec.size(counts) for name, codec in CODECS.items()}
    # 130 values; for quantisers 0 + 1 + 1 + 2 blocks of a scale and 64 levels; for the largest three scales, then
    # 8 of 64 in 8·3 + ⌊63/4⌋ bits of positions and 8 signs, and so on.
    assert sizes == {
        "float32": 520,
        "bfloat16": 260,
        "float16": 260,
        "q8": 4 * (2 + 64),
        "q4": 4 * (2 + 32),
        "q2": 4 * (2 + 16),
        "top8": 3 * 2 + (2 + 47 + 52 + 7) // 8,
        "top16": 3 * 2 + (2 + 27 + 33 + 7) // 8,
        "top32": 3 * 2 + (2 + 15 + 22 + 7) // 8,
        "sign": 17,
    }


@codecs
def test_a_codec_is_found_by_its_name_and_by_its_code(codec: ValueCodec) -> None:
    assert codec_named(codec.name, "wire.values") is codec
    assert codec_coded(codec.code) is codec


def test_an_unknown_codec_is_named_to_the_user_and_refused_from_the_wire() -> None:
    with pytest.raises(OptionError, match=r"wire.values must be one of .* got 'flat32'; did you mean 'float32'"):
        WireConfig(values="flat32").check()
    with pytest.raises(OptionError, match=r"wire.download must be"):
        WireConfig(download="q3").check()
    with pytest.raises(WireError, match="value codec 200, which is not known here"):
        codec_coded(200)


class Other(Float32):
    """Somebody's own codec."""

    name, code = "other", 200


def test_a_codec_of_ones_own_can_be_registered_once() -> None:
    register(Other())
    try:
        assert codec_coded(200) is codec_named("other", "wire.values")
        with pytest.raises(ValueError, match="named other with code 200 is registered already"):
            register(Other())
    finally:
        del CODECS["other"]


def test_a_class_that_is_registered_is_called() -> None:
    assert register(Other) is Other
    try:
        assert isinstance(CODECS["other"], Other)
    finally:
        del CODECS["other"]


@pytest.mark.parametrize("code", [-1, 77, 127, 256])
def test_a_code_must_fit_a_byte_and_be_none_of_ours(code: int) -> None:
    codec = Other()
    codec.code = code  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"must be in \[128, 255\]"):
        register(codec)


@codecs
@given(st.integers(0, 99))
@settings(max_examples=20)
def test_what_clients_side_by_side_send_arrives_as_one_by_one(codec: ValueCodec, seed: int) -> None:
    draws = generator(seed, "values")
    rows = [torch.from_numpy(draws.normal(size=(3, n)).astype(np.float32)) for n in (1, 64, 130)]
    if codec.name == "sign":
        rows = [torch.where(value < 0, -1.0, 1.0) for value in rows]
    together = codec.received(rows, [generator(seed, "test", client=k) for k in range(3)])
    plain = ValueCodec.received(codec, rows, [generator(seed, "test", client=k) for k in range(3)])
    assert all(torch.equal(one, other) for one, other in zip(together, plain, strict=True))
    if not codec.random:
        for found in (codec.received(rows, []), ValueCodec.received(codec, rows, [])):
            assert all(torch.equal(one, other) for one, other in zip(together, found, strict=True))
