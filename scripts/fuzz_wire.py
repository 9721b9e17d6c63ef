"""Throw damaged, hostile and random payloads at `decode_update`: each must be refused, or be a valid update.

    python scripts/fuzz_wire.py --count 200000 --out results/wire-fuzz.json

Every case takes a valid answer to a task that a server gave (several networks, codecs, mask codes, packings), changes
it, and in most cases makes the checksum agree again, so that what lies behind the checksum is reached. Decoding must
raise `WireError` or give an update of exactly the right shapes, formats, mask budgets and range; anything else is a
failure, and so is needing more than twice the model's own memory. Case i of a seed is the same on every machine.
"""

import argparse
import hashlib
import json
import platform
import random
import re
import struct
import subprocess
import sys
import time
import traceback
import tracemalloc
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.multiprocessing import reductions
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from feddst import wire
from feddst.clients.steps import Growth, Readjust, Report
from feddst.core import (
    Broadcast,
    ClientPlan,
    Examples,
    LocalTraining,
    Masks,
    Tensors,
    Update,
    generator,
    masked,
    packed,
    positions_of,
)
from feddst.errors import WireError
from feddst.methods import FedDST
from feddst.models import ModelConfig, initial_model, make_module, network
from feddst.sparsity import Sparsity
from feddst.wire import ClientTask, Message, Reference, WireConfig, decode_update, encode_update, general_codecs
from feddst.wire.codecs import codec_coded
from feddst.wire.header import Header, Kind, Packing
from feddst.wire.masks import MaskCode, MaskStyle, encode_masks
from feddst.wire.payload import join, split
from feddst.wire.update import LARGEST_TERM, answer_layout

ROUND, WEIGHT, LARGEST_WEIGHT = 7, 60, 600
STYLES: tuple[MaskStyle, ...] = ("difference", "positions", "bitmap")
MEMORY_LIMIT, MEMORY_EXTRA = 2.0, 64 * 1024
"""How many times the memory of what was asked for decoding may need beside the payload, and bytes on top of that."""
MEASURED = 20
"""Memory is measured in one of so many cases, and in every case of the paper's network."""
ANSWERED = WireConfig(mask="positions", max_change=0.0)
"""However far an answer is, and with as much room for a mask as there can be: checks by content are to be reached."""
CODEC_NAMES = {codec.code: name for name, codec in wire.CODECS.items()}
AS_CLAIMED = 0.95
"""Share of the cases in which the codec that a payload claims to have is the one that was asked for."""
PAPER = "mnist-cnn"
LARGE_SHARE = 0.1
"""Share of the cases that are for the paper's network."""


# What is asked for, and valid answers to it.


@dataclass(frozen=True)
class Target:
    """A server's task, and valid answers to it in every form."""

    name: str
    task: ClientTask
    answers: tuple[bytes, ...]

    def asking_for(self, payload: bytes) -> ClientTask:
        """The task, but asking for the value codec that a payload claims to have, if there is such a codec.

        So the code behind that check is reached.
        """
        name = CODEC_NAMES.get(payload[7]) if len(payload) > 7 else None
        return self.task if name is None else replace(self.task, wire=replace(self.task.wire, values=name))

    @property
    def model_bytes(self) -> int:
        """The memory of the model alone."""
        sent = self.task.sent.broadcast
        return sum(value.nbytes for value in [*sent.params.values(), *sent.buffers.values()])

    @property
    def asked_bytes(self) -> int:
        """The memory of an answer without masks: the model, and what is reported of it."""
        return sum(field.size * field.dtype.itemsize for field in answer_layout(self.task).fields)


def all_targets() -> tuple[list[Target], list[Target]]:
    """The paper's network, and small ones of every kind."""
    return list(_paper_targets()), list(_small_targets())


def _paper_targets() -> Iterator[Target]:
    def draw() -> nn.Module:
        return network(ModelConfig(), (1, 28, 28), 10)

    model, plain = initial_model(make_module(draw, seed=1)), ClientPlan(LocalTraining())
    yield _target(f"{PAPER} dense", model.params, {}, {}, plain)
    for level in (0.8, 0.5):
        state = FedDST(sparsity=Sparsity(level)).init(model, seed=1)
        plan = plain.adding(_orders(state.masks))
        yield _target(f"{PAPER} {level}", state.params, {}, state.masks, plan)
    yield _target(f"{PAPER} {level} gradient", state.params, {}, state.masks, plan.adding(Report("gradient")))


def _small_targets() -> Iterator[Target]:
    shapes: Mapping[str, tuple[int, ...]] = {"conv": (4, 3, 3), "fc": (12, 30), "bias": (12,)}
    params, masks = _drawn(shapes), _drawn_masks(shapes, {"conv": 0.5, "fc": 0.1})
    buffers = {"mean": torch.ones(3), "seen": torch.tensor(5), "on": torch.tensor([True, False, True])}
    readjust = _orders(masks)
    plain = ClientPlan(LocalTraining())
    moving = plain.adding(readjust)
    yield _target("dense", params, buffers, {}, plain)
    yield _target("fixed mask", params, buffers, masks, plain)
    yield _target("readjusted", params, buffers, masks, moving)
    published = replace(readjust, growth=Growth(grow_from="any"))
    yield _target("published growth", params, {}, masks, moving.adding(published))
    yield _target("gradient", params, buffers, masks, moving.adding(Report("gradient")))
    yield _target("only gradient", params, buffers, masks, replace(plain.adding(Report("gradient")), train=False))
    yield _target("kept layer", params, buffers, masks, replace(moving, keep=frozenset({"conv"})))
    odd: Mapping[str, tuple[int, ...]] = {"empty": (0, 4), "one": (1,), "scalar": (), "all": (9, 8), "none": (4, 4)}
    kept = {"empty": 1.0, "one": 1.0, "all": 1.0, "none": 0.0}
    odd_masks = _drawn_masks(odd, kept)
    half = {**_drawn(odd), "half": torch.ones(70, dtype=torch.float16), "brain": torch.ones(5, dtype=torch.bfloat16)}
    yield _target("odd", half, {"nothing": torch.empty(0)}, odd_masks, plain.adding(_orders(odd_masks)))


def _target(name: str, params: Tensors, buffers: Tensors, masks: Masks, plan: ClientPlan) -> Target:
    sent = Broadcast(ROUND, masked(params, masks), buffers, masks)
    data = Examples(targets=torch.zeros(LARGEST_WEIGHT, dtype=torch.int64))
    task = ClientTask(3, 1, plan, Message().read_as(Reference(sent)), data, wire=ANSWERED)
    answers = tuple(
        encode_update(_answer(task, moves), replace(task, wire=WireConfig(codec, "float32", style, packing)))
        for codec in general_codecs()
        for moves in ((False, True) if plan.step(Readjust) is not None else (False,))
        for style in (STYLES if moves else STYLES[:1])
        for packing in (("plain", "deflate") if style == "difference" else ("plain",))
    )
    target = Target(name, task, answers)
    for payload in answers:  # fills caches before memory is measured
        decode_update(payload, target.asking_for(payload))
    return target


def _answer(task: ClientTask, moves: bool) -> Update:
    sent, plan = task.sent.broadcast, task.plan
    masks = _moved(sent.masks, _draws()) if moves else sent.masks
    params = {name: value + 0.1 for name, value in sent.params.items() if plan.train and name not in plan.keep}
    return Update(
        client=task.client,
        round=ROUND,
        weight=WEIGHT,
        params=packed(params, positions_of(masks)),
        buffers=sent.buffers if plan.train else {},
        masks=masks if moves else None,
        extra={group: {name: value.float() for name, value in sent.params.items()} for group in plan.groups},
    )


def _draws() -> np.random.Generator:
    return generator(1, "fuzz")


def _drawn(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    draws = _draws()
    return {name: torch.from_numpy(np.asarray(draws.random(s), dtype=np.float32)) for name, s in shapes.items()}


def _drawn_masks(shapes: Mapping[str, tuple[int, ...]], shares: Mapping[str, float]) -> dict[str, Tensor]:
    draws = _draws()
    return {name: torch.from_numpy(np.asarray(draws.random(shapes[name]) < share)) for name, share in shares.items()}


def _orders(masks: Masks) -> Readjust:
    budgets = {name: int(mask.sum()) for name, mask in masks.items()}
    return Readjust(1, {name: budget // 5 + 1 for name, budget in budgets.items()}, budgets)


def _moved(masks: Masks, draws: np.random.Generator, *, more: int = 0) -> dict[str, Tensor]:
    """Masks with a few weights dropped and grown again elsewhere, and `more` of them grown than dropped."""
    found = {}
    for name, mask in masks.items():
        flat = mask.reshape(-1).numpy().copy()
        active, inactive = np.flatnonzero(flat), np.flatnonzero(~flat)
        count = min(len(active) // 5 + 1, len(active), len(inactive))
        grown = min(max(count + more, 0), len(inactive))
        flat[draws.choice(active, count, replace=False)] = False
        flat[draws.choice(inactive, grown, replace=False)] = True
        found[name] = torch.from_numpy(flat).view(mask.shape)
    return found


# How it is changed.


@dataclass
class Draft:
    """A payload in pieces. `patches` change bytes of the whole before its checksum is made to agree."""

    target: Target
    header: Header
    mask: bytes
    buffers: bytes
    values: bytes
    true_lengths: bool = True
    patches: list[tuple[int, bytes]] = field(default_factory=list)

    def payload(self) -> bytes:
        header = self.header
        if self.true_lengths:
            header = replace(header, mask_bytes=len(self.mask), value_bytes=len(self.values))
        whole = bytearray(join(header, self.mask, self.buffers, self.values))
        for start, data in self.patches:
            whole[start : start + len(data)] = data
        return sealed(whole)


def sealed(payload: bytearray) -> bytes:
    """The payload with a checksum that agrees, if it is long enough to have one."""
    if len(payload) >= 48:
        payload[44:48] = struct.pack("<I", zlib.crc32(payload[48:], zlib.crc32(payload[:44])))
    return bytes(payload)


def draft_of(target: Target, payload: bytes) -> Draft:
    sections = split(payload, answer_layout(target.task), Kind.UPDATE)
    return Draft(target, sections.header, bytes(sections.mask), bytes(sections.buffers), bytes(sections.values))


Change = Callable[[Draft, random.Random], None]


def change_section(draft: Draft, rng: random.Random) -> None:
    """Bits, bytes or length of one section."""
    weights = {"mask": 5, "values": 3, "buffers": 1}
    names = [name for name in weights if getattr(draft, name)] or ["values"]
    name = rng.choices(names, [weights[name] for name in names])[0]
    setattr(draft, name, damaged(getattr(draft, name), rng, resize=name != "buffers"))


def change_field(draft: Draft, rng: random.Random) -> None:
    """One field of the header, to another number that it can hold."""
    start, size = rng.choice(
        [(4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (12, 4), (16, 4), (20, 4), (24, 8), (32, 4), (36, 4)]
    )
    near = int.from_bytes(draft.header.pack()[start : start + size], "little")
    most = 256**size - 1
    value = rng.choice([0, 1, 2, 3, 4, 8, near + 1, near - 1, most // 2, most, rng.randrange(most + 1)])
    draft.patches.append((start, (value % (most + 1)).to_bytes(size, "little")))


def change_any_byte(draft: Draft, rng: random.Random) -> None:
    """Any byte, reserved ones and padding too."""
    size = len(draft.payload())
    draft.patches.append(
        (rng.randrange(min(size, 64)) if rng.random() < 0.5 else rng.randrange(size), rng.randbytes(1))
    )


def change_codec(draft: Draft, rng: random.Random) -> None:
    """Another value codec, sometimes with as many bytes as it takes."""
    codec = rng.choice(list(wire.CODECS.values()))
    draft.header = replace(draft.header, values=codec.code)
    if rng.random() < 0.7:
        draft.values = _of_size(draft.values, codec.size(_counts(draft)), rng)


def change_code(draft: Draft, rng: random.Random) -> None:
    """Another mask code, with the reference that goes with it."""
    code = rng.choice([MaskCode.SAME, MaskCode.BITMAP, MaskCode.POSITIONS, MaskCode.DIFFERENCE])
    name = draft.target.task.sent.mask_name if code in (MaskCode.SAME, MaskCode.DIFFERENCE) else 0
    draft.header = replace(draft.header, mask=code, reference=name)
    if code is MaskCode.SAME:
        draft.mask = b""


def other_mask(draft: Draft, rng: random.Random) -> None:
    """A well-formed section of another mask: within its budgets or not, or of layers that have none."""
    task = draft.target.task
    sent, layout = task.sent.broadcast, answer_layout(task)
    draws = np.random.default_rng(rng.randrange(2**32))
    masks = _moved(sent.masks, draws, more=rng.choice([0, 0, 0, -1, 1, 10**9]))
    if rng.random() < 0.2:
        name = rng.choice(list(sent.params))
        masks[name] = torch.from_numpy(np.asarray(draws.random(tuple(sent.params[name].shape)) < 0.5))
    elif rng.random() < 0.2 and masks:
        del masks[rng.choice(list(masks))]
    code, draft.mask = encode_masks(masks, layout, rng.choice(STYLES), sent.masks)
    name_of = task.sent.mask_name if code in (MaskCode.SAME, MaskCode.DIFFERENCE) else 0
    draft.header = replace(draft.header, mask=code, reference=name_of, packing=Packing.PLAIN)
    own = {**sent.masks, **masks}
    counts = [int(own[f.name].sum()) if f.group == "params" and f.name in own else f.size for f in layout.coded]
    draft.values = _of_size(draft.values, codec_coded(draft.header.values).size(counts), rng)


def odd_numbers(draft: Draft, rng: random.Random) -> None:
    """Infinities, NaN, the largest and the smallest, in place of some values or buffers."""
    name = rng.choices(["values", "buffers"], [3, 1])[0]
    data = bytearray(getattr(draft, name))
    for _ in range(rng.randint(1, 3)):
        odd = rng.choice(["0000c07f", "0000807f", "000080ff", "ffff7f7f", "01000000", "00000080", "007c", "807f", "ff"])
        start = rng.randrange(len(data) // 4 + 1) * 4
        data[start : start + len(odd) // 2] = bytes.fromhex(odd)[: max(len(data) - start, 0)]
    setattr(draft, name, bytes(data))


def huge_counts(draft: Draft, rng: random.Random) -> None:
    """Numbers of dozens of bits where a mask section has its counts."""
    if not draft.mask:
        change_code(draft, rng)
    draft.mask = bytes(rng.randint(0, 6)) + rng.randbytes(rng.randint(0, 9)) + draft.mask[rng.randint(0, 12) :]


def deflated(draft: Draft, rng: random.Random) -> None:
    """Values deflated elsewhere: damaged, too long, far too long, or with trailing bytes."""
    data = rng.choice(
        [draft.values, draft.values + b"\0", draft.values[:-1], bytes(50_000), bytes(draft.header.value_bytes)]
    )
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    small = coder.compress(data) + coder.flush()
    draft.values = rng.choice([small, small, small + b"\0", small[:-1], damaged(small, rng)])
    draft.header = replace(draft.header, packing=Packing.DEFLATE)


def splice(draft: Draft, rng: random.Random) -> None:
    """Some sections of another answer to the same question."""
    other = draft_of(draft.target, rng.choice(draft.target.answers))
    for name in rng.sample(["header", "mask", "buffers", "values"], rng.randint(1, 3)):
        setattr(draft, name, getattr(other, name))


def random_sections(draft: Draft, rng: random.Random) -> None:
    """Random bytes behind a good header."""
    draft.mask = rng.randbytes(rng.randint(0, len(draft.mask) + 8))
    draft.values = rng.randbytes(len(draft.values))


def wrong_lengths(draft: Draft, rng: random.Random) -> None:
    """Lengths that are not those of the sections."""
    draft.true_lengths = False
    draft.header = replace(
        draft.header,
        mask_bytes=max(0, len(draft.mask) + rng.randint(-9, 9)),
        value_bytes=max(0, len(draft.values) + rng.randint(-9, 9)),
    )


CHANGES: dict[Change, int] = {
    change_section: 30,
    other_mask: 15,
    change_field: 10,
    huge_counts: 8,
    odd_numbers: 8,
    splice: 7,
    change_codec: 6,
    change_code: 5,
    deflated: 5,
    change_any_byte: 3,
    random_sections: 2,
    wrong_lengths: 1,
}
"""What is done to a payload before its checksum is made to agree, and how often."""


def damaged(data: bytes, rng: random.Random, *, resize: bool = True) -> bytes:
    """Bytes with some bits flipped or bytes overwritten, cut short, or drawn out."""
    found = bytearray(data)
    kind = rng.choice(["bits", "bits", "bytes", "run", *(["cut", "more"] if resize else [])])
    if kind == "more" or not found:
        more = rng.choice([b"\0", b"\xff", bytes(rng.randint(1, 40)), rng.randbytes(rng.randint(1, 40))])
        found += more
    elif kind == "cut":
        del found[rng.choice([rng.randrange(len(found)), len(found) - 1]) :]
    else:
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(min(16, len(found)) if rng.random() < 0.3 else len(found))
            if kind == "bits":
                found[place] ^= 1 << rng.randrange(8)
            elif kind == "bytes":
                found[place] = rng.randrange(256)
            else:
                end = min(len(found), place + rng.randint(1, 32))
                found[place:end] = rng.choice([b"\0", b"\xff", rng.randbytes(1)]) * (end - place)
    return bytes(found)


def _counts(draft: Draft) -> list[int]:
    masks = draft.target.task.sent.broadcast.masks
    return [
        int(masks[f.name].sum()) if f.group == "params" and f.name in masks else f.size
        for f in answer_layout(draft.target.task).coded
    ]


def _of_size(data: bytes, size: int, rng: random.Random) -> bytes:
    return data[:size] + (b"\0" if rng.random() < 0.8 else b"\x3f") * (size - len(data))


# One case, and what must be true of it.


@dataclass(frozen=True)
class Case:
    """A payload as an answer to a task of a target, and what was done to make it."""

    target: Target
    task: ClientTask
    payload: bytes
    changes: tuple[str, ...]


def make_case(seed: int, index: int, large: Sequence[Target], small: Sequence[Target]) -> Case:
    """Case number `index`: a pure function of its arguments."""
    rng = random.Random(f"{seed} {index}")
    target = rng.choice(large if rng.random() < LARGE_SHARE else small)
    answer = rng.choice(target.answers)
    payload, changes = _changed(target, answer, rng)
    task = target.asking_for(payload if rng.random() < AS_CLAIMED else answer)
    return Case(target, task, payload, changes)


def _changed(target: Target, answer: bytes, rng: random.Random) -> tuple[bytes, tuple[str, ...]]:
    """A payload made of an answer, and what was done to make it."""
    what = rng.random()
    if what < 0.02:
        return rng.randbytes(rng.choice([0, 10, 47, 48, 100, 5000])), ("random",)
    if what < 0.15:
        raw = damaged(answer, rng) if rng.random() < 0.8 else answer + rng.choice(target.answers)
        return raw, ("unsealed",)
    draft = draft_of(target, answer)
    changes = rng.choices(list(CHANGES), list(CHANGES.values()), k=rng.choice([1, 1, 1, 2, 3]))
    for change in changes:
        change(draft, rng)
    payload = draft.payload()
    if rng.random() < 0.05:
        payload = sealed(bytearray(damaged(payload, rng)))
    return payload, tuple(change.__name__ for change in changes)


def fault_of(update: Update, task: ClientTask) -> str | None:
    """What is wrong with an update that was accepted."""
    sent, layout = task.sent.broadcast, answer_layout(task)
    if not (1 <= update.weight <= LARGEST_WEIGHT and update.round == ROUND and update.client == task.client):
        return f"weight {update.weight}, round {update.round}, client {update.client}"
    masks = sent.masks if update.masks is None else update.masks
    for name, mask in masks.items():
        if mask.dtype is not torch.bool or mask.shape != sent.params[name].shape:
            return f"the mask of {name} is {mask.dtype} {tuple(mask.shape)}"
    if masks.keys() != sent.masks.keys():
        return f"masks for {list(masks)}"
    if update.masks is not None and (fault := _budget_fault(masks, task)):
        return fault
    expected: dict[str, dict[str, tuple[tuple[int, ...], torch.dtype]]] = {"params": {}, "buffers": {}}
    for f in layout.fields:
        packed_layer = f.group == "params" and f.name in masks
        shape = (int(masks[f.name].sum()),) if packed_layer else f.shape
        dtype = f.dtype if f.group in ("params", "buffers") else torch.float32
        expected.setdefault(f.group, {})[f.name] = (shape, dtype)
    groups: dict[str, Tensors] = {"params": update.params, "buffers": update.buffers, **update.extra}
    found = {group: {n: (tuple(v.shape), v.dtype) for n, v in values.items()} for group, values in groups.items()}
    if found != expected:
        return f"tensors {found}, not {expected}"
    for group, values in groups.items():
        for name, value in values.items():
            if not (value.double().abs() * update.weight < LARGEST_TERM).all():
                return f"{name} of {group} holds something too large"
    return None


def _budget_fault(masks: Masks, task: ClientTask) -> str | None:
    orders, sent = task.plan.step(Readjust), task.sent.broadcast
    for name, mask in masks.items():
        kept, held = int(mask.sum()), int(sent.masks[name].sum())
        left, entered = int((sent.masks[name] & ~mask).sum()), int((mask & ~sent.masks[name]).sum())
        if orders is None or name in task.plan.keep:
            allowed = not bool((mask ^ sent.masks[name]).any())
        else:
            short = orders.growth.grow_from == "any"
            allowed = kept == orders.budgets[name] or (short and held - orders.drop[name] <= kept < held)
            allowed = allowed and max(left, entered) <= orders.drop[name]
        if not allowed:
            return f"the mask of {name} keeps {kept}, of which {entered} are new; {left} have left"
    return None


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The most memory alive at once: what tracemalloc sees (Python, numpy), and what PyTorch's operations return.

    What an operation uses inside is not seen: a sum over booleans makes them int64 first, so wire code counts instead.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._storages: list[tuple[Any, int, int]] = []

    def __enter__(self) -> "Meter":
        tracemalloc.start()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._look()
        tracemalloc.stop()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # there is nothing to compile, and loading the compiler takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._look()
        given = {_address(value) for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)}
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            known = given | {address for _, address, _ in self._storages}
            if isinstance(value, Tensor) and _address(value) not in known:
                storage = value.untyped_storage()
                weak: Any = reductions.StorageWeakRef
                self._storages.append((weak(storage), _address(value), storage.nbytes()))
        self._look()
        return result

    def _look(self) -> None:
        self._storages = [known for known in self._storages if not known[0].expired()]
        own = sum(size for _, _, size in self._storages)
        self.peak = max(self.peak, own + tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()


def _address(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()


@dataclass
class Memory:
    """The most that decoding for one target needed, over what was asked for and over the model alone."""

    of_asked: float = 0.0
    of_model: float = 0.0
    above_twice_the_model: int = 0

    def note(self, peak: int, target: Target) -> None:
        self.of_asked = max(self.of_asked, round(peak / target.asked_bytes, 3))
        self.of_model = max(self.of_model, round(peak / target.model_bytes, 3))
        self.above_twice_the_model += peak > 2 * target.model_bytes


@dataclass
class Tally:
    """The outcomes of all cases so far."""

    rejected: int = 0
    accepted: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    accepted_after: Counter[str] = field(default_factory=Counter)
    cases: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    measured: int = 0
    memory: dict[str, Memory] = field(default_factory=dict)

    @property
    def largest_ratio(self) -> float:
        return max((memory.of_asked for memory in self.memory.values()), default=0.0)

    @property
    def count(self) -> int:
        return self.rejected + self.accepted + len(self.failures)


def run_case(case: Case, report: Tally, *, measure: bool) -> None:
    """Decode one case and judge it, with its memory where that is measured."""
    report.cases[case.target.name] += 1
    update, meter = None, Meter()
    try:
        if measure:
            with meter:
                update = decode_update(case.payload, case.task)
        else:
            update = decode_update(case.payload, case.task)
        fault = fault_of(update, case.task)
    except WireError as error:
        fault = None
        report.reasons[normalised(str(error))] += 1
    except Exception:
        fault = traceback.format_exc().strip()
    if measure:
        report.measured += 1
        whole = case.target.asked_bytes
        if meter.peak > MEMORY_LIMIT * whole + MEMORY_EXTRA:
            fault = fault or f"needed {meter.peak:,} bytes for an answer of {whole:,}"
        if case.target.name.startswith(PAPER):
            report.memory.setdefault(case.target.name, Memory()).note(meter.peak, case.target)
    if fault is not None:
        report.failures.append(f"{case.target.name}, {' + '.join(case.changes)}: {fault}")
    elif update is not None:
        report.accepted += 1
        report.accepted_after[" + ".join(sorted(set(case.changes)))] += 1
    else:
        report.rejected += 1


_NAMES = "conv1|conv2|fc1|fc2|conv|fc|bias|mean|seen|on|empty|one|scalar|all|none|half|brain|nothing"


def normalised(reason: str) -> str:
    """A reason without its numbers, and without the names of tensors and codecs."""
    reason = re.sub(r"begins with .*", "begins with …", reason)
    reason = re.sub(r"asked for was \w+", "asked for was another", reason)
    reason = re.sub(
        rf"\b(?:{_NAMES})(?:\.(?:weight|bias))?(?= (?:comes|keeps|where|of|holds|is boolean))", "TENSOR", reason
    )
    reason = re.sub(r"-?\b(?:[0-9a-f]{16}|[0-9a-f]{8})\b", "#", reason)
    return re.sub(r"-?(?:\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b|\binf\b|\bnan\b)", "#", reason)


def fuzz(count: int, seed: int, say: Callable[[Tally], None] = lambda report: None) -> Tally:
    """`count` cases on one core; `say` is called every two seconds or so."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _fuzz(count, seed, say)
    finally:
        torch.set_num_threads(threads)


def _fuzz(count: int, seed: int, say: Callable[[Tally], None]) -> Tally:
    large, small = all_targets()
    with Meter():  # the first time takes longer, and memory of its own
        decode_update(small[0].answers[0], small[0].asking_for(small[0].answers[0]))
    untouched = [_checksum(target) for target in [*large, *small]]
    report, last = Tally(), time.monotonic()
    for index in range(count):
        case = make_case(seed, index, large, small)
        failures = len(report.failures)
        run_case(case, report, measure=case.target.name.startswith(PAPER) or index % MEASURED == 0)
        if len(report.failures) > failures:
            report.failures[-1] = f"case {index}: {report.failures[-1]}"
        if time.monotonic() - last > 2:
            last = time.monotonic()
            say(report)
    if untouched != [_checksum(target) for target in [*large, *small]]:
        report.failures.append("what the server holds was changed by decoding")
    return report


def _checksum(target: Target) -> int:
    """The checksum of all that the server decodes against."""
    reference, checksum = target.task.sent, 0
    for group in (reference.broadcast.params, reference.values, reference.broadcast.buffers, reference.broadcast.masks):
        for value in group.values():
            checksum = zlib.crc32(value.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes(), checksum)
    return checksum


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the record")
    args = parser.parse_args()
    warnings.simplefilter("error")
    source = _source()  # now, not at the end: what was imported may be replaced on disk by then
    began = time.monotonic()
    report = fuzz(args.count, args.seed, lambda report: print(_line(report, args.count), file=sys.stderr))
    seconds = time.monotonic() - began
    print(_line(report, args.count))
    for failure in report.failures[:20]:
        print(failure)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(
            json.dumps(_record(report, args.seed, seconds, source), indent=1, ensure_ascii=False) + "\n"
        )
    return 1 if report.failures else 0


def _line(report: Tally, count: int) -> str:
    return (
        f"{report.count:,} of {count:,}: {report.rejected:,} refused, {report.accepted:,} valid, "
        f"{len(report.failures)} failures, memory up to {report.largest_ratio:.2f} times what was asked for"
    )


def _record(report: Tally, seed: int, seconds: float, source: Mapping[str, str]) -> dict[str, Any]:
    return {
        "command": " ".join(["python", *sys.argv]),
        "count": report.count,
        "seed": seed,
        "rejected": report.rejected,
        "accepted": report.accepted,
        "failures": report.failures,
        "memory": {
            "what": "peak while decoding, beside the payload: tracemalloc (Python, numpy) plus the tensors that "
            "PyTorch's operations return; not what they use inside",
            "sample": f"every case of the paper's MNIST network, one in {MEASURED} of the others",
            "measured": report.measured,
            "limit": f"{MEMORY_LIMIT:g} times what was asked for (model and reports, unmasked) + {MEMORY_EXTRA} bytes",
            "largest_ratio": report.largest_ratio,
            "paper_network": {name: asdict(memory) for name, memory in sorted(report.memory.items())},
        },
        "seconds": round(seconds, 1),
        **source,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cases": dict(report.cases.most_common()),
        "reasons": dict(report.reasons.most_common()),
        "accepted_after": dict(report.accepted_after.most_common(30)),
    }


def _source() -> dict[str, str]:
    """Which version of the code this is: the commit, and a digest of feddst.wire, committed or not."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    files = sorted(Path(wire.__file__).parent.glob("*.py"))
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in files), digest_size=8).hexdigest()
    return {"commit": commit, "decoder": digest}


if __name__ == "__main__":
    sys.exit(main())
