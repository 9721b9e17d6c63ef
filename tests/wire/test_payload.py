"""Payloads as a whole: sections where they belong, damage noticed, lengths and unpacking never trusted."""

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feddst.core import generator
from feddst.errors import WireError
from feddst.wire import CODECS, Field, Layout, general_codecs
from feddst.wire.header import Header, Kind, Packing
from feddst.wire.masks import MaskCode, most_mask_bytes
from feddst.wire.payload import (
    Sections,
    join,
    mask_bytes,
    payload_size,
    read_raw,
    read_values,
    refuse_large,
    split,
    write_raw,
    write_values,
)
from feddst.wire.values import Float32

SEEN = Field("buffers", "seen", (), torch.int64)
MEAN = Field("buffers", "mean", (3,), torch.float32)
LAYOUT = Layout((Field("params", "w", (4, 5), torch.float32), Field("params", "b", (2,), torch.float32), MEAN, SEEN))
MASK, BUFFERS, VALUES = b"\x01\x02\x03", bytes(range(20)), bytes(range(100, 188))
HEADER = Header(
    kind=Kind.UPDATE,
    mask=MaskCode.POSITIONS,
    values=0,
    packing=Packing.PLAIN,
    round=1,
    weight=2,
    reference=0,
    fingerprint=LAYOUT.fingerprint,
    mask_bytes=len(MASK),
    value_bytes=len(VALUES),
)
PAYLOAD = join(HEADER, MASK, BUFFERS, VALUES)


def test_sections_begin_at_multiples_of_eight_with_zeros_between() -> None:
    assert PAYLOAD[48:56] == MASK + bytes(5)
    assert PAYLOAD[56:80] == BUFFERS + bytes(4)
    assert PAYLOAD[80:] == VALUES
    assert mask_bytes(PAYLOAD) == 3


def test_the_checksum_covers_all_but_itself() -> None:
    assert int.from_bytes(PAYLOAD[44:48], "little") == zlib.crc32(PAYLOAD[:44] + PAYLOAD[48:])


def test_a_payload_comes_apart_again() -> None:
    sections = split(PAYLOAD, LAYOUT, Kind.UPDATE)
    assert sections.header == HEADER
    assert (bytes(sections.mask), bytes(sections.buffers), bytes(sections.values)) == (MASK, BUFFERS, VALUES)


class Careless(Float32):
    """Somebody's own codec that does not look at what it is given."""

    name, code = "careless", 200

    def decode(self, data: memoryview, counts: Sequence[int]) -> list[torch.Tensor]:
        if not data[0]:
            raise IndexError("no such block")
        if data[0] == 1:
            raise WireError("refused by itself")
        return [torch.zeros(count - 1) for count in counts]


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (0, "careless cannot read the values: IndexError: no such block"),
        (1, "refused by itself"),
        (2, "careless makes other numbers of values than 20, 2"),
    ],
)
def test_bytes_that_a_codec_from_elsewhere_trips_over_are_refused(
    first: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CODECS, "careless", Careless())
    payload = join(replace(HEADER, values=200), MASK, BUFFERS, bytes([first]) + VALUES[1:])
    with pytest.raises(WireError, match=re.escape(reason)):
        read_values(split(payload, LAYOUT, Kind.UPDATE), [20, 2])


def test_every_flipped_bit_is_noticed() -> None:
    for place in range(8 * len(PAYLOAD)):
        damaged = bytearray(PAYLOAD)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(WireError):
            split(memoryview(damaged), LAYOUT, Kind.UPDATE)


def test_every_truncation_and_every_extension_is_noticed() -> None:
    for end in range(len(PAYLOAD)):
        with pytest.raises(WireError):
            split(PAYLOAD[:end], LAYOUT, Kind.UPDATE)
    for more in (b"\0", bytes(8), PAYLOAD):
        with pytest.raises(WireError, match="its header speaks of 168"):
            split(PAYLOAD + more, LAYOUT, Kind.UPDATE)


def test_damage_that_leaves_the_lengths_alone_fails_the_checksum() -> None:
    with pytest.raises(WireError, match="the checksum does not match"):
        split(PAYLOAD[:-1] + b"\0", LAYOUT, Kind.UPDATE)


MOST = most_mask_bytes(LAYOUT)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (replace(HEADER, kind=Kind.BROADCAST), "of kind BROADCAST, not UPDATE"),
        (replace(HEADER, fingerprint=HEADER.fingerprint ^ 1), "for another model: fingerprint"),
        (replace(HEADER, values=99), "value codec 99, which is not known here"),
        (replace(HEADER, values=1), "the value section would have 88 bytes, this model's has at most 44"),
        (replace(HEADER, mask_bytes=MOST + 1), f"mask section would have {MOST + 1} bytes, .* at most {MOST}"),
        (replace(HEADER, mask_bytes=2**32 - 1), "mask section would have 4294967295 bytes"),
        (replace(HEADER, value_bytes=89), "value section would have 89 bytes, this model's has at most 88"),
        (replace(HEADER, value_bytes=2**32 - 1), "value section would have 4294967295 bytes"),
        (replace(HEADER, value_bytes=87), "the payload has 168 bytes, its header speaks of 167"),
        (replace(HEADER, mask_bytes=9), "the payload has 168 bytes, its header speaks of 176"),
        (replace(HEADER, mask_bytes=0), "the payload has 168 bytes, its header speaks of 160"),
    ],
)
def test_a_sound_checksum_does_not_excuse_a_wrong_header(header: Header, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        split(join(header, MASK, BUFFERS, VALUES), LAYOUT, Kind.UPDATE)


@pytest.mark.parametrize("sections", [(b"\1\2\3\4", BUFFERS, VALUES), (MASK, BUFFERS + b"\1", VALUES)])
def test_padding_must_be_zero(sections: tuple[bytes, bytes, bytes]) -> None:
    with pytest.raises(WireError, match="padding between sections is not zero"):
        split(join(HEADER, *sections), LAYOUT, Kind.UPDATE)


def test_the_size_of_a_payload_by_hand() -> None:
    # 48 of header, 3 and 20 rounded up to 8 and 24, four for each of 7 + 2 values.
    assert payload_size(LAYOUT, 3, 4 * (7 + 2)) == 48 + 8 + 24 + 36


FIELDS = [
    MEAN,
    SEEN,
    Field("buffers", "none", (0, 3), torch.float32),
    Field("buffers", "on", (2,), torch.bool),
    Field("buffers", "half", (2,), torch.float16),
]
TENSORS = {
    "mean": torch.tensor([1.5, -0.0, 2.0**-149]),
    "seen": torch.tensor(2**40 + 1),
    "none": torch.empty(0, 3),
    "on": torch.tensor([True, False]),
    "half": torch.tensor([1.0, -2.0], dtype=torch.float16),
}


def test_buffers_travel_in_their_own_formats() -> None:
    data = write_raw(FIELDS, TENSORS)
    assert data == bytes.fromhex("0000c03f 00000080 01000000" + "01000000 00010000" + "0100" + "003c 00c0")
    assert len(data) == sum(field.bytes for field in FIELDS)
    found = read_raw(memoryview(data), FIELDS)
    for name, value in TENSORS.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].numpy().tobytes() == value.numpy().tobytes()


def test_a_tensor_that_is_not_contiguous_is_written_in_its_order() -> None:
    field = Field("buffers", "m", (2, 2), torch.float32)
    value = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T
    assert torch.equal(read_raw(memoryview(write_raw([field], {"m": value})), [field])["m"], value)


def test_what_is_read_does_not_share_the_payload() -> None:
    data = bytearray(write_raw(FIELDS, TENSORS))
    found = read_raw(memoryview(data), FIELDS)
    data[:] = bytes(len(data))
    assert found["mean"].tolist() == [1.5, -0.0, 2.0**-149]


def test_booleans_must_be_zero_or_one() -> None:
    with pytest.raises(WireError, match="on is boolean, and holds something else"):
        read_raw(memoryview(b"\x01\x02"), [Field("buffers", "on", (2,), torch.bool)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 4096.0, -4096.0])
@pytest.mark.parametrize("place", [0, 7, 99])
def test_values_that_cannot_be_averaged_are_refused(dtype: torch.dtype, value: float, place: int) -> None:
    values = torch.ones(100, dtype=dtype)
    values[place] = value
    with pytest.raises(WireError, match=r"w holds .*: not a number, or too large to average"):
        refuse_large({"w": values}, 4096.0)


@pytest.mark.parametrize("value", [2**36, -(2**36), 2**63 - 1, -(2**63)])
def test_whole_numbers_that_are_too_large_are_refused(value: int) -> None:
    with pytest.raises(WireError, match="too large"):
        refuse_large({"seen": torch.tensor(value)}, 2.0**36)


def test_values_below_the_limit_are_let_through() -> None:
    refuse_large({"w": torch.tensor([4095.9, -4095.9])}, 4096.0)
    refuse_large({"seen": torch.tensor(2**36 - 1)}, 2.0**36)
    refuse_large({"none": torch.empty(0)}, 1.0)
    refuse_large({"on": torch.tensor([True])}, 0.5)


counts = st.lists(st.sampled_from([0, 1, 63, 64, 65, 700]), max_size=4)


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("name", general_codecs())
@settings(max_examples=25)
@given(counts=counts, seed=st.integers(0, 2**32), kinds=st.sampled_from([2, 5, 10**6]))
def test_values_come_back_packed_or_not(name: str, deflate: bool, counts: list[int], seed: int, kinds: int) -> None:
    codec, draws = CODECS[name], np.random.default_rng(seed)
    tensors = [torch.from_numpy(draws.integers(0, kinds, n).astype(np.float32)) for n in counts]
    packing, data = write_values(codec, tensors, generator(seed, "test"), deflate=deflate)
    plain = codec.encode(tensors, generator(seed, "test"))
    assert len(data) < len(plain) if packing is Packing.DEFLATE else data == plain
    found = read_values(sections_of(name, packing, data), counts)
    expected = codec.decode(memoryview(plain), counts)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_values_are_deflated_only_if_that_helps() -> None:
    noise = torch.from_numpy(np.random.default_rng(0).integers(0, 2**32, 1000, dtype=np.uint32).view(np.float32))
    draws = generator(0, "test")
    assert write_values(CODECS["float32"], [noise], draws, deflate=True)[0] is Packing.PLAIN
    assert write_values(CODECS["float32"], [torch.zeros(1000)], draws, deflate=True)[0] is Packing.DEFLATE
    assert write_values(CODECS["float32"], [torch.empty(0)], draws, deflate=True) == (Packing.PLAIN, b"")


def deflated(data: bytes) -> bytes:
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    return coder.compress(data) + coder.flush()


def test_any_deflated_section_of_the_right_size_is_read() -> None:
    for size in range(1, 300):
        data = np.arange(size, dtype="<f4").tobytes()
        (found,) = read_values(sections_of("float32", Packing.DEFLATE, deflated(data)), [size])
        assert found.tolist() == list(range(size))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: deflated(bytes(4 * 1000 - 1)),
        lambda data: deflated(bytes(4 * 1000 + 1)),
        lambda data: deflated(bytes(100_000_000)),  # a hundred megabytes from a hundred kilobytes
        lambda data: deflated(data) + b"\0",
        lambda data: deflated(data) + deflated(data),
        lambda data: deflated(data)[:-1],
        lambda data: deflated(b""),
        lambda data: b"",
        lambda data: b"\xff" * 20,
        lambda data: zlib.compress(data),
        lambda data: data,
    ],
)
def test_a_section_that_does_not_unpack_to_its_size_is_refused(spoil: Callable[[bytes], bytes]) -> None:
    section = spoil(np.arange(1000, dtype="<f4").tobytes())
    with pytest.raises(WireError, match=r"cannot be unpacked|does not unpack to 4000 bytes"):
        read_values(sections_of("float32", Packing.DEFLATE, section), [1000])


def test_a_deflated_section_of_nothing_holds_nothing() -> None:
    assert [len(value) for value in read_values(sections_of("float32", Packing.DEFLATE, deflated(b"")), [0, 0])] == [
        0,
        0,
    ]


@pytest.mark.parametrize("section", [b"", deflated(b"1"), deflated(b"") + b"\0", deflated(bytes(10**6))])
def test_a_deflated_section_of_something_does_not(section: bytes) -> None:
    with pytest.raises(WireError, match="does not unpack to 0 bytes"):
        read_values(sections_of("float32", Packing.DEFLATE, section), [0])


@pytest.mark.parametrize("count", [4095, 4096, 4097, 8192, 50_000])
@pytest.mark.parametrize("kind", ["zeros", "noise", "steps"])
def test_sections_of_many_pieces_are_unpacked_and_not_a_byte_more(count: int, kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 2**32, count, dtype=np.uint32).view("<f4")
    data = {"zeros": np.zeros(count, "<f4"), "noise": noise, "steps": np.arange(count, dtype="<f4")}[kind].tobytes()
    (found,) = read_values(sections_of("float32", Packing.DEFLATE, deflated(data)), [count])
    assert found.numpy().tobytes() == data
    for wrong in (deflated(data) + b"\0", deflated(data) + bytes(40_000), deflated(data[:-1]), deflated(data + b"\0")):
        with pytest.raises(WireError, match=f"does not unpack to {4 * count} bytes"):
            read_values(sections_of("float32", Packing.DEFLATE, wrong), [count])


@pytest.mark.parametrize("size", [0, 3999, 4001])
def test_a_plain_section_has_exactly_its_size(size: int) -> None:
    with pytest.raises(WireError, match=f"the value section has {size} bytes, 4000 are expected"):
        read_values(sections_of("float32", Packing.PLAIN, bytes(size)), [1000])


@given(st.binary(max_size=60))
def test_any_bytes_unpack_to_their_size_or_are_refused(section: bytes) -> None:
    try:
        (found,) = read_values(sections_of("float32", Packing.DEFLATE, section), [2])
    except WireError:
        return
    assert found.shape == (2,)


def sections_of(name: str, packing: Packing, values: bytes) -> Sections:
    """A payload that is nothing but values."""
    header = replace(HEADER, values=CODECS[name].code, packing=packing, value_bytes=len(values))
    return Sections(header, memoryview(b""), memoryview(b""), memoryview(values))
