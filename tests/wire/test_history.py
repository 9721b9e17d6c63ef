"""What the server remembers of masks: the last few, by name, and through a checkpoint."""

import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from feddst.wire import MaskHistory
from feddst.wire.history import NO_MASK, mask_name


def test_a_mask_is_named_by_its_checksum() -> None:
    assert mask_name(b"123456789") == 0xCBF43926  # the CRC-32 that everybody quotes
    assert mask_name(b"") == NO_MASK


def test_a_client_holds_what_it_received_last() -> None:
    history = MaskHistory(8)
    assert history.held_by(3) == b""
    history.received(3, b"one")
    history.received(4, b"one")
    history.received(3, b"two")
    assert (history.held_by(3), history.held_by(4), history.held_by(5)) == (b"two", b"one", b"")


def test_the_mask_received_longest_ago_is_forgotten_with_all_who_hold_it() -> None:
    history = MaskHistory(2)
    history.received(0, b"one")
    history.received(1, b"one")
    history.received(2, b"two")
    history.received(3, b"one")  # in use again, so that the other is now the oldest
    history.received(4, b"three")
    assert [history.held_by(client) for client in range(5)] == [b"one", b"one", b"", b"one", b"three"]


def test_a_client_can_be_forgotten() -> None:
    history = MaskHistory(2)
    history.received(0, b"one")
    history.received(1, b"one")
    history.forget(0)
    history.forget(7)
    assert (history.held_by(0), history.held_by(1)) == (b"", b"one")


def test_a_client_that_received_no_mask_holds_none() -> None:
    history = MaskHistory(2)
    history.received(0, b"one")
    history.received(0, b"")
    assert history.held_by(0) == b""


def test_a_history_of_nothing_remembers_nothing() -> None:
    history = MaskHistory(0)
    history.received(0, b"one")
    assert history.held_by(0) == b""
    assert history.as_parts() == ({}, {})


receptions = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([b"", b"a", b"b", b"c", b"d", b"e"])), max_size=40)


@settings(max_examples=50)
@given(st.integers(0, 4), receptions)
def test_never_more_masks_than_its_bound_and_never_a_wrong_one(bound: int, received: list[tuple[int, bytes]]) -> None:
    history, last = MaskHistory(bound), dict[int, bytes]()
    for client, bitmap in received:
        history.received(client, bitmap)
        last[client] = bitmap
        bitmaps, clients = history.as_parts()
        assert len(bitmaps) <= bound
        assert set(clients.values()) <= set(bitmaps)
        assert history.held_by(client) == (bitmap if bound else b"")
        assert all(history.held_by(other) in (b"", held) for other, held in last.items())


@settings(max_examples=50)
@given(st.integers(0, 4), receptions, receptions)
def test_a_restored_history_goes_on_as_the_first_would_have(
    bound: int, before: list[tuple[int, bytes]], after: list[tuple[int, bytes]]
) -> None:
    first, second = MaskHistory(bound), MaskHistory(bound)
    for client, bitmap in before:
        first.received(client, bitmap)
    second.restore(*first.as_parts())
    for client, bitmap in after:
        first.received(client, bitmap)
        second.received(client, bitmap)
    assert [list(parts.items()) for parts in first.as_parts()] == [list(parts.items()) for parts in second.as_parts()]


def test_parts_name_each_mask_by_its_checksum_oldest_first() -> None:
    history = MaskHistory(8)
    for client, bitmap in enumerate((b"one", b"two", b"one")):
        history.received(client, bitmap)
    one, two = zlib.crc32(b"one"), zlib.crc32(b"two")
    bitmaps, clients = history.as_parts()
    assert list(bitmaps.items()) == [(two, b"two"), (one, b"one")]
    assert clients == {0: one, 1: two, 2: one}


def test_a_mask_whose_name_is_that_of_no_mask_is_not_taken_for_everybodys() -> None:
    forged = b"\x9d\x0a\xd9\x6d"  # its CRC-32 is 0
    assert mask_name(forged) == NO_MASK
    history = MaskHistory(2)
    history.received(1, forged)
    assert history.held_by(1) == forged
    assert history.held_by(2) == b""
