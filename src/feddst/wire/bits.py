"""Sets of numbers as few bits: the coder under every mask.

A set of d numbers below N costs log₂C(N, d) bits at best. This codes the gaps between its members, each as a
quotient in unary and a remainder of r bits (Golomb–Rice code). r follows from N and d alone, so nothing about the
code itself is sent. It stays within a few per cent of the best, needs no tables, and numpy codes a whole layer in
a handful of operations. A set with more than half of the numbers is coded by the numbers it lacks; one that splits
them nearly evenly is a plain bitmap.

Bits are held as uint8 arrays of 0 and 1, and packed into bytes lowest bit first.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from feddst.errors import WireError

Bits = NDArray[np.uint8]
Members = NDArray[np.int64]

LONGEST_NUMBER = 40
"""Bits in the largest number that may be sent."""


def pack(pieces: Sequence[Bits]) -> bytes:
    """The bits one after another, with zeros up to a whole byte."""
    return np.packbits(np.concatenate(pieces), bitorder="little").tobytes() if pieces else b""


def number(value: int) -> Bits:
    """The Elias γ code of value + 1, for a value of at least 0.

    It has as many zeros as there are bits below the leading 1, then that 1, then these bits, lowest first.
    """
    plus = value + 1
    below = plus.bit_length() - 1
    return np.array([0] * below + [1] + [plus >> i & 1 for i in range(below)], dtype=np.uint8)


def signed(value: int) -> int:
    """0, 1, −1, 2, −2, … as 0, 1, 2, 3, 4, …"""
    return 2 * value - 1 if value > 0 else -2 * value


def unsigned(value: int) -> int:
    """The reverse of `signed`."""
    return (value + 1) // 2 if value % 2 else -(value // 2)


class BitReader:
    """Reads a section of packed bits from its beginning; raises `WireError` where it would read past the end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        self._next = 0

    def take(self, count: int) -> Bits:
        """The next `count` bits."""
        end = self._next + count
        if end > len(self._bits):
            raise WireError(f"the mask section ends early: {end} bits are needed, {len(self._bits)} are there")
        found = self._bits[self._next : end]
        self._next = end
        return found

    def number(self) -> int:
        """A number as `number` writes it."""
        ahead = self._bits[self._next : self._next + LONGEST_NUMBER]
        below = int(ahead.argmax()) if len(ahead) else 0
        if not ahead[below : below + 1].any():
            raise WireError("the mask section holds a number that is too long or cut short")
        self.take(below + 1)
        return (1 << below) + int.from_bytes(pack([self.take(below)]), "little") - 1

    def rest(self) -> Bits:
        """All bits that are left."""
        return self.take(len(self._bits) - self._next)

    def finish(self) -> None:
        """Raise unless all that is left is the padding of the last byte."""
        left = self.rest()
        if len(left) > 7 or left.any():
            raise WireError("the mask section goes on after its end")


def write_sets(sets: Sequence[tuple[int, Members]]) -> list[Bits]:
    """Sets as (N, members rising): first the bitmaps, then all remainders, then all quotients in unary."""
    bitmaps: list[Bits] = []
    remainders: list[Bits] = []
    quotients: list[Bits] = []
    for size, members in sets:
        if _is_even(size, len(members)):
            bitmaps.append(flags(size, members))
            continue
        fewer = members if 2 * len(members) <= size else np.flatnonzero(flags(size, members) == 0)
        gaps = fewer.copy()
        gaps[1:] -= fewer[:-1] + 1
        width = _remainder_width(size, len(fewer))
        remainders.append(low_bits(gaps, width))
        quotients.append(_unary(gaps >> width))
    return [*bitmaps, *remainders, *quotients]


def read_sets(reader: BitReader, sets: Sequence[tuple[int, int]]) -> list[Members]:
    """The sets that `write_sets` wrote, given their (N, d); they are the last thing in a section."""
    bitmaps = [reader.take(size) if _is_even(size, count) else None for size, count in sets]
    coded = [(size, min(count, size - count)) for size, count in sets if not _is_even(size, count)]
    remainders = [reader.take(fewer * _remainder_width(size, fewer)) for size, fewer in coded]
    ends = _unary_ends(reader.rest(), sum(fewer for _, fewer in coded))
    members: list[Members] = []
    done = 0
    for (size, count), bitmap in zip(sets, bitmaps, strict=True):
        if bitmap is not None:
            found = np.flatnonzero(bitmap)
        else:
            fewer = min(count, size - count)
            found = _from_gaps(size, ends[done : done + fewer + 1], remainders.pop(0))
            found = found if 2 * count <= size else np.flatnonzero(flags(size, found) == 0)
            done += fewer
        if len(found) != count:
            raise WireError(f"a bitmap of {size} bits has {len(found)} ones, {count} were announced")
        members.append(found)
    return members


def bits_needed(size: int, count: int) -> int:
    """The most bits that a set of `count` numbers below `size` takes; never more than `size`."""
    if _is_even(size, count):
        return size
    fewer = min(count, size - count)
    width = _remainder_width(size, fewer)
    return fewer * (width + 1) + ((size - fewer) >> width) if fewer else 0


def fewest_bits(size: int, count: int) -> int:
    """The fewest bits that a set of `count` numbers below `size` takes: those where all quotients are 0."""
    fewer = min(count, size - count)
    return size if _is_even(size, count) else fewer * (_remainder_width(size, fewer) + 1)


@lru_cache(maxsize=256)
def most_bits_needed(size: int, most: int) -> int:
    """The most bits that a set of `most` or fewer numbers below `size` takes.

    The largest set need not take the most: beyond the bitmaps, sets are coded by what they lack, and where
    remainders get a bit shorter the worst case does too. Between such points it grows, so only they matter:
    remainders have r bits or more up to the d with d·(25·2^r + 12) < 24·N.
    """
    if _is_even(size, min(most, size // 2)):
        return size
    ends = [most, *((24 * size - 1) // (25 * 2**width + 12) for width in range(1, size.bit_length() + 1))]
    return max(bits_needed(size, min(end, most)) for end in ends)


def _is_even(size: int, count: int) -> bool:
    """Whether a set is so near to half of its numbers that a bitmap is as good."""
    return 4 * min(count, size - count) > size


def _remainder_width(size: int, count: int) -> int:
    """r: the best number of bits for remainders, if all sets of this size are equally likely.

    The smallest r ≥ 0 with 2^r ≥ 0.48·(mean gap + ½), in whole numbers: 25·d·2^(r+1) ≥ 12·(2N − d).
    """
    if count == 0:
        return 0
    need = -(-12 * (2 * size - count) // (50 * count))
    return max(need - 1, 0).bit_length()


def flags(size: int, members: Members) -> Bits:
    """A set as a bitmap of `size` bits."""
    bitmap = np.zeros(size, dtype=np.uint8)
    bitmap[members] = 1
    return bitmap


def low_bits(numbers: Members, width: int) -> Bits:
    """The `width` lowest bits of each number, lowest first."""
    in_bytes = numbers.astype("<i8", copy=False)[:, None].view(np.uint8)
    return np.unpackbits(in_bytes, axis=1, count=width, bitorder="little").reshape(-1)


def append_low_bits(numbers: Members, bits: Bits) -> None:
    """Shift the numbers up, in place, and put the bits below them that `low_bits` made."""
    width = len(bits) // max(len(numbers), 1)
    rows = bits.reshape(len(numbers), width)
    numbers <<= width
    for i in range(width):
        numbers |= np.left_shift(rows[:, i], i, dtype=np.int64)


def _unary(quotients: Members) -> Bits:
    """Each number as that many zeros and a one."""
    ends = np.cumsum(quotients + 1) - 1
    return flags(int(ends[-1]) + 1 if len(ends) else 0, ends)


def _unary_ends(bits: Bits, count: int) -> Members:
    """−1, then where each of the `count` unary numbers ends; raises unless the bits hold exactly that many."""
    if np.count_nonzero(bits) != count:
        raise WireError("the mask section does not hold as many positions as it announces")
    ends = np.empty(count + 1, dtype=np.int64)
    ends[0] = -1
    ends[1:] = np.flatnonzero(bits)
    if len(bits) - 1 - ends[-1] > 7:
        raise WireError("the mask section goes on after its end")
    return ends


def _from_gaps(size: int, ends: Members, remainders: Bits) -> Members:
    """The members of a set, from the ends of their gaps' quotients and the bits of the remainders.

    In place as far as possible: a payload must not make a server need much more memory than its model.
    """
    found = ends[1:] - ends[:-1]
    found -= 1
    append_low_bits(found, remainders)
    found += 1
    np.cumsum(found, out=found)
    found -= 1
    if len(found) and found[-1] >= size:
        raise WireError(f"the mask section names position {found[-1]} of {size}")
    return found
