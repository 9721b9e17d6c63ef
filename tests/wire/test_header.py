"""The header: its bytes by hand, there and back, and every field that can be wrong by itself."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddst.errors import WireError
from feddst.wire.header import SIZE, Header, Kind, Packing, pack_checksum, padding, read_header
from feddst.wire.masks import MaskCode

HEADER = Header(
    kind=Kind.UPDATE,
    mask=MaskCode.DIFFERENCE,
    values=8,
    packing=Packing.DEFLATE,
    round=0x01020304,
    weight=600,
    reference=0xA0B0C0D0,
    fingerprint=0x1122334455667788,
    mask_bytes=5,
    value_bytes=0x10203,
)
BYTES = HEADER.pack() + pack_checksum(0xDEADBEEF)


def test_a_header_by_hand() -> None:
    assert len(BYTES) == SIZE == 48
    assert BYTES.hex(" ", 4) == (
        "46445354 01010408 01000000 "  # FDST, version 1, an update, a difference, q8, deflated, three zeros
        "04030201 58020000 d0c0b0a0 "  # round, weight 600, name of the mask
        "88776655 44332211 "  # fingerprint
        "05000000 03020100 00000000 efbeadde"  # lengths of the sections, four zeros, checksum
    )


u32 = st.integers(0, 2**32 - 1)
headers = st.builds(
    Header,
    kind=st.sampled_from(Kind),
    mask=st.sampled_from(MaskCode),
    values=st.integers(0, 255),
    packing=st.sampled_from(Packing),
    round=u32,
    weight=u32,
    reference=u32,
    fingerprint=st.integers(0, 2**64 - 1),
    mask_bytes=u32,
    value_bytes=u32,
)


@given(headers, u32, st.binary(max_size=4))
def test_headers_come_back(header: Header, checksum: int, rest: bytes) -> None:
    assert read_header(memoryview(header.pack() + pack_checksum(checksum) + rest)) == (header, checksum)


@given(headers, headers)
def test_different_headers_are_different_bytes(a: Header, b: Header) -> None:
    assert (a.pack() == b.pack()) == (a == b)
    assert replace(a, round=a.round ^ 1).pack() != a.pack()


@pytest.mark.parametrize("size", [0, 1, 47])
def test_less_than_a_header_is_refused(size: int) -> None:
    with pytest.raises(WireError, match=f"the payload has {size} bytes, its header alone would have 48"):
        read_header(memoryview(BYTES[:size]))


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, 0x47, "begins with b'GDST', not with b'FDST'"),
        (4, 0, "format version 0, this program reads 1"),
        (4, 2, "format version 2, this program reads 1"),
        (5, 2, "2 is not a valid Kind"),
        (6, 5, "5 is not a valid MaskCode"),
        (8, 2, "2 is not a valid Packing"),
        *((place, 1, "reserved bytes of the header are not zero") for place in (9, 10, 11, 40, 41, 42, 43)),
    ],
)
def test_a_field_that_cannot_be_is_refused(place: int, value: int, reason: str) -> None:
    data = bytearray(BYTES)
    data[place] = value
    with pytest.raises(WireError, match=reason):
        read_header(memoryview(data))


def test_padding_leads_to_the_next_multiple_of_eight() -> None:
    assert [padding(length) for length in (0, 1, 7, 8, 9, 48)] == [0, 7, 1, 0, 7, 0]
