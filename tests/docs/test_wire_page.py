"""docs/wire.md says what the code does: its examples are decoded, by the package and by what the page alone tells."""

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.wire.updates import exchange
from feddst.clients.steps import Readjust
from feddst.core import Broadcast, ClientPlan, Examples, LocalTraining, Tensors, Update, packed, positions_of
from feddst.options import options_of
from feddst.wire import (
    CODECS,
    BroadcastEncoder,
    ClientTask,
    MaskHistory,
    Message,
    Reference,
    WireConfig,
    decode_broadcast,
    decode_update,
    encode_update,
)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/wire.md").read_text()

Shapes = Sequence[tuple[str, tuple[int, ...]]]
Held = Mapping[str, set[int]]


def block(kind: str) -> str:
    [found] = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def payload(kind: str) -> bytes:
    return bytes.fromhex("".join(re.findall(r"^(?:[0-9a-f]{2}(?: |$))+", block(f"hex {kind}"), re.MULTILINE)))


# The example.


def dense(at: Sequence[int], values: Sequence[float]) -> torch.Tensor:
    whole = torch.zeros(32)
    whole[list(at)] = torch.tensor(values)
    return whole.view(4, 8)


def example() -> Broadcast:
    params = {"w": dense([3, 7, 18, 29], [1, -0.25, 0.5, 2]), "b": torch.tensor([0.5, -1.0])}
    return Broadcast(1, params, {"seen": torch.tensor(0)}, {"w": params["w"] != 0})


def test_the_broadcast_on_the_page() -> None:
    sent = example()
    layout = Reference(sent).layout
    digest = hashlib.blake2b(block("text").rstrip("\n").encode(), digest_size=8).digest()
    assert int.from_bytes(digest, "little") == layout.fingerprint
    got = decode_broadcast(payload("broadcast"), layout)
    assert got.round == 1
    assert same(got.params, sent.params)
    assert same(got.buffers, sent.buffers)
    assert same(got.masks, sent.masks)
    encoder = BroadcastEncoder(sent, WireConfig(), MaskHistory(1), seed=0)
    assert encoder.message_for(0).payload == payload("broadcast")


def test_the_mask_name_on_the_page() -> None:
    reference = Reference(example())
    assert reference.bitmap == bytes.fromhex("2202108000")
    assert reference.mask_name == 0xF08F78C9


def test_the_update_on_the_page() -> None:
    plan = ClientPlan(LocalTraining(), (Readjust(1, {"w": 1}, {"w": 4}),))
    images = Examples(targets=torch.zeros(40, dtype=torch.int64))
    task = ClientTask(0, 0, plan, Message().read_as(Reference(example())), images, wire=WireConfig(values="q2"))
    got = decode_update(payload("update"), task)
    assert (got.round, got.weight) == (1, 40)
    assert got.masks is not None
    assert np.flatnonzero(got.masks["w"]).tolist() == [3, 12, 18, 29]
    assert {name: value.tolist() for name, value in got.params.items()} == {
        "w": [1.5, -0.5, 0.5, 2.5],
        "b": [0.5, -0.75],
    }
    assert got.buffers["seen"].item() == 2
    assert encode_update(got, task) == payload("update")


def same(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# A decoder written from the page, bit by bit, with nothing of feddst.wire in it.


class Bits:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def bit(self) -> int:
        value = self.data[self.at // 8] >> self.at % 8 & 1
        self.at += 1
        return value

    def bits(self, count: int) -> int:
        return sum(self.bit() << i for i in range(count))

    def unary(self) -> int:
        zeros = 0
        while not self.bit():
            zeros += 1
        return zeros

    def gamma(self) -> int:
        n = self.unary()
        return (1 << n) + self.bits(n) - 1

    def signed(self) -> int:
        v = self.gamma()
        return (v + 1) // 2 if v % 2 else -v // 2

    def sets(self, sizes: Sequence[tuple[int, int]]) -> list[set[int]]:
        even = [4 * min(d, n - d) > n for n, d in sizes]
        bitmaps = [{i for i in range(n) if self.bit()} if e else set() for (n, _), e in zip(sizes, even, strict=True)]
        fewer = [0 if e else min(d, n - d) for (n, d), e in zip(sizes, even, strict=True)]
        widths = [width(n, f) for (n, _), f in zip(sizes, fewer, strict=True)]
        remainders = [[self.bits(r) for _ in range(f)] for f, r in zip(fewer, widths, strict=True)]
        found: list[set[int]] = []
        for (n, d), e, bitmap, low, r in zip(sizes, even, bitmaps, remainders, widths, strict=True):
            p, members = -1, set()
            for rest in low:
                p += (self.unary() << r) + rest + 1
                members.add(p)
            found.append(bitmap if e else members if 2 * d <= n else set(range(n)) - members)
        return found

    def finish(self) -> None:
        assert -self.at % 8 + self.at == 8 * len(self.data)
        assert self.bits(-self.at % 8) == 0


def width(n: int, f: int) -> int:
    if f == 0:
        return 0
    need = -(-12 * (2 * n - f) // (50 * f))
    return max(need - 1, 0).bit_length()


def plain_masks(code: int, section: bytes, shapes: Shapes, held: Held) -> Held:
    if code in (0, 1):
        assert not section
        return held if code == 1 else {}
    bits = Bits(section)
    size = {name: int(np.prod(shape)) for name, shape in shapes}
    if code == 4:
        names = [name for name, _ in shapes if name in held]
        sizes: list[tuple[int, int]] = []
        for name in names:
            leaving = bits.gamma()
            sizes += [(len(held[name]), leaving), (size[name] - len(held[name]), leaving + bits.signed())]
        sets, masks = bits.sets(sizes), {}
        for i, name in enumerate(names):
            kept, others = sorted(held[name]), sorted(set(range(size[name])) - held[name])
            left, entered = {kept[j] for j in sets[2 * i]}, {others[j] for j in sets[2 * i + 1]}
            masks[name] = held[name] - left | entered
    else:
        flags = [bits.bit() for _ in shapes]
        names = [name for (name, _), flag in zip(shapes, flags, strict=True) if flag]
        if code == 2:
            masks = {name: {i for i in range(size[name]) if bits.bit()} for name in names}
        else:
            counts = [bits.gamma() for _ in names]
            masks = dict(zip(names, bits.sets([(size[n], c) for n, c in zip(names, counts, strict=True)]), strict=True))
    bits.finish()
    return masks


def plain_values(codec: int, data: bytes, counts: Sequence[int]) -> list[list[float]]:
    if codec == 0:
        flat = list(struct.unpack(f"<{sum(counts)}f", data))
    elif codec == 1:
        halves = struct.unpack(f"<{sum(counts)}H", data)
        flat = list(struct.unpack(f"<{sum(counts)}f", struct.pack(f"<{sum(counts)}I", *(h << 16 for h in halves))))
    elif codec == 2:
        flat = list(struct.unpack(f"<{sum(counts)}e", data))
    elif codec in (9, 10, 11):
        return plain_largest({9: 8, 10: 16, 11: 32}[codec], data, counts)
    else:
        return plain_blocks({3: 2, 4: 4, 8: 8}[codec], data, counts)
    starts = np.cumsum([0, *counts])
    return [flat[start : start + count] for start, count in zip(starts, counts, strict=False)]


def plain_blocks(b: int, data: bytes, counts: Sequence[int]) -> list[list[float]]:
    top = 2 ** (b - 1) - 1
    blocks = [(count + 63) // 64 for count in counts]
    levels = Bits(data[2 * sum(blocks) :])
    tensors, done = [], 0
    for count, number in zip(counts, blocks, strict=True):
        values: list[float] = []
        for i in range(done, done + number):
            (half,) = struct.unpack_from("<H", data, 2 * i)
            (s,) = struct.unpack("<f", struct.pack("<I", half << 16))
            step = np.float32(s) / np.float32(top)
            values += [float(np.float32(levels.bits(b) - top) * step) for _ in range(64)]
        assert not any(values[count:])
        tensors.append(values[:count])
        done += number
    levels.finish()
    return tensors


def plain_largest(m: int, data: bytes, counts: Sequence[int]) -> list[list[float]]:
    filled = [n for n in counts if n]
    halves = struct.unpack_from(f"<{len(filled)}H", data)
    scales = list(struct.unpack(f"<{len(filled)}f", struct.pack(f"<{len(filled)}I", *(h << 16 for h in halves))))
    bits, tensors = Bits(data[2 * len(filled) :]), []
    for n in counts:
        values = [0.0] * n
        if n:
            k, s = -(-n // m), scales.pop(0)
            lengths = [k * (w + 1) + (n - 1) // 2**w for w in range(40)]
            w = lengths.index(min(lengths))
            low = [bits.bits(w) for _ in range(k)]
            ones = [place for place in range(k + (n - 1) // 2**w) if bits.bit()]
            for i, (place, rest) in enumerate(zip(ones, low, strict=True)):
                values[(place - i) * 2**w + rest] = s if bits.bit() else -s
        tensors.append(values)
    bits.finish()
    return tensors


def plain(data: bytes, shapes: Shapes, held: Held, buffer_bytes: int) -> tuple[Held, dict[str, list[float]]]:
    """Masks and values of a payload without reports; the values of a quantised update are changes."""
    head = struct.unpack("<4sBBBBB3xIIIQII4xI", data[:48])
    magic, version, _, code, codec, packing, _, _, _, _, mask_bytes, value_bytes, checksum = head
    assert (magic, version) == (b"FDST", 1)
    assert zlib.crc32(data[:44] + data[48:]) == checksum
    buffers = 48 + (mask_bytes + 7) // 8 * 8
    values = buffers + (buffer_bytes + 7) // 8 * 8
    assert len(data) == values + value_bytes
    masks = plain_masks(code, data[48 : 48 + mask_bytes], shapes, held)
    counts = [len(masks[name]) if name in masks else int(np.prod(shape)) for name, shape in shapes]
    section = zlib.decompress(data[values:], -15) if packing else data[values:]
    found = plain_values(codec, section, counts)
    return masks, {name: part for (name, _), part in zip(shapes, found, strict=True)}


def members(masks: Mapping[str, torch.Tensor]) -> dict[str, set[int]]:
    return {name: set(np.flatnonzero(mask.numpy()).tolist()) for name, mask in masks.items()}


def shapes_of(params: Tensors) -> Shapes:
    return sorted((name, tuple(value.shape)) for name, value in params.items())


def agrees(update: Update, values: Mapping[str, list[float]], before: Mapping[str, torch.Tensor] | None) -> bool:
    for name, value in update.params.items():
        mine = torch.tensor(values[name])
        if before is not None:
            mine = before[name].reshape(-1) + mine
        if not torch.equal(mine, value.reshape(-1)):
            return False
    return True


def test_the_page_alone_suffices_for_the_example() -> None:
    shapes: Shapes = [("b", (2,)), ("w", (4, 8))]
    masks, values = plain(payload("broadcast"), shapes, {}, buffer_bytes=8)
    assert masks == {"w": {3, 7, 18, 29}}
    assert values == {"b": [0.5, -1], "w": [1, -0.25, 0.5, 2]}
    masks, values = plain(payload("update"), shapes, masks, buffer_bytes=8)
    assert masks == {"w": {3, 12, 18, 29}}
    assert values == {"b": [0, 0.25], "w": [0.5, -0.5, 0, 0.5]}


@pytest.mark.parametrize(
    ("wire", "level", "alpha"),
    [
        (WireConfig(values="q4", packing="deflate"), 0.95, 0.05),
        (WireConfig(values="q2", mask="positions"), 0.99, 0.3),
        (WireConfig(values="q8", mask="bitmap"), 0.99, 0.3),
        (WireConfig(values="top8"), 0.9, 0.0),
        (WireConfig(values="top16", mask="bitmap"), 0.95, 0.4),
        (WireConfig(values="top32", packing="deflate"), 0.8, 0.05),
        (WireConfig(values="bfloat16"), 0.95, 0.4),
        (WireConfig(values="float16"), 0.98, 0.0),
        (WireConfig(values="float32"), 0.98, 0.001),
    ],
    ids=lambda value: f"{value.values}-{value.mask}" if isinstance(value, WireConfig) else str(value),
)
def test_the_page_alone_suffices_for_real_updates(wire: WireConfig, level: float, alpha: float) -> None:
    real = exchange("mnist-cnn", level, seed=1, alpha=alpha)
    task, sent = replace(real.task, wire=wire), real.reference.broadcast
    data = encode_update(real.update, task)
    masks, values = plain(data, shapes_of(sent.params), members(sent.masks), buffer_bytes=0)
    new = sent.masks if real.update.masks is None else real.update.masks
    assert masks == members(new)
    before = packed(sent.params, positions_of(new)) if CODECS[wire.values].relative else None
    assert agrees(decode_update(data, task), values, before)


# What else the page says.


@pytest.fixture
def registry() -> Iterator[None]:
    """The codecs as they were, afterwards."""
    before = dict(CODECS)
    yield
    CODECS.clear()
    CODECS.update(before)


@pytest.mark.usefixtures("registry")
def test_a_codec_in_a_few_lines() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block("python"), "wire.md", "exec"), names)
    real = exchange("mnist-cnn", 0.95, seed=1)
    wire = WireConfig(values="mean-sign")
    wire.check()
    task = replace(real.task, wire=wire)
    data = encode_update(real.update, task)
    got = decode_update(data, task)
    assert 8 * len(data) / real.values < 1.1
    before = real.reference.values
    for name, value in real.update.params.items():
        change, sent = got.params[name] - before[name], value - before[name]
        assert torch.equal(change > 0, sent > 0)
        assert change.abs().mean().item() == pytest.approx(sent.abs().mean().item(), rel=1e-2)


def test_the_codecs_are_listed() -> None:
    for codec in CODECS.values():
        assert f"\n| {codec.code} | {codec.name} | " in PAGE
        assert f"{codec.code} {codec.name}" in PAGE


def test_the_options_are_listed() -> None:
    for opt in options_of(WireConfig):
        default = str(opt.default).lower() if opt.type is bool else opt.default
        assert f"\n| `--wire.{opt.name}` | {default} | " in PAGE
