"""Updates: there and back in every style, bounded in size, and refused for every single thing that can be wrong."""

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from feddst.clients.steps import Growth, InitialPruning, Readjust, Report
from feddst.core import (
    Broadcast,
    ClientPlan,
    Examples,
    LocalTraining,
    Masks,
    ServerState,
    SparseSum,
    Tensors,
    Update,
    masked,
    packed,
    positions_of,
)
from feddst.core.fixedpoint import ROOM
from feddst.errors import WireError
from feddst.wire import (
    CODECS,
    ClientTask,
    Message,
    Reference,
    WireConfig,
    decode_update,
    encode_update,
    general_codecs,
    largest_update,
)
from feddst.wire.header import Kind, Packing
from feddst.wire.masks import MaskCode
from feddst.wire.payload import join, split
from feddst.wire.quantise import BLOCK, Quantiser, block_scales, in_blocks
from feddst.wire.update import LARGEST_TERM, answer_layout

STYLES = ["difference", "positions", "bitmap"]
SHAPES: list[tuple[int, ...]] = [(0,), (2, 0), (), (1,), (5,), (3, 7), (2, 3, 3), (70,), (9, 30)]


def asked(reference: Reference, plan: ClientPlan, *, client: int = 5, images: int = 600, **wire: Any) -> ClientTask:
    """The task of a client with so many images, which may answer however far from what it was sent."""
    data = Examples(targets=torch.zeros(images, dtype=torch.int64))
    message = Message().read_as(reference)
    return ClientTask(client, 0, plan, message, data, wire=WireConfig(**{"max_change": 0.0, **wire}))


def sent_over(update: Update, reference: Reference, plan: ClientPlan, **wire: Any) -> Update:
    """The update as it arrives."""
    task = asked(reference, plan, client=update.client, images=update.weight, **wire)
    payload = encode_update(update, task)
    assert len(payload) <= largest_update(task)
    return decode_update(payload, task)


def assert_same(found: Tensors, expected: Tensors) -> None:
    """Equal in names, shapes, formats and every bit."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype), name
        assert found[name].numpy().tobytes() == value.numpy().tobytes(), name


# Any exchange: odd layers, masked or not, readjusted or not, with buffers, reports, and parameters that stay.

Exchange = tuple[Reference, ClientPlan, Update]


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    """What a client was sent, its orders, and its answer."""
    shapes = dict(enumerate(draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4))))
    draws = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtypes = {i: draw(st.sampled_from([torch.float32] * 4 + [torch.float16])) for i in shapes}
    names = {i: f"layer{i}" for i in shapes}
    start = {names[i]: _normal(draws, shape).to(dtypes[i]) for i, shape in shapes.items()}
    end = {name: (value.float() + 0.1 * _normal(draws, value.shape)).to(value.dtype) for name, value in start.items()}
    shares = {name: draw(st.sampled_from([None, 0.0, 0.1, 0.5, 0.9, 1.0])) for name in start}
    held = {name: _some(draws, start[name].shape, share) for name, share in shares.items() if share is not None}
    buffers = {"mean": _normal(draws, (3,)), "seen": torch.tensor(7), "on": torch.tensor([True, False])}
    buffers = {name: value for name, value in buffers.items() if draw(st.booleans())}
    readjust, masks = None, held
    if draw(st.booleans()):
        readjust, masks = _readjusted(draw, draws, held)
    steps = () if readjust is None else (readjust,)
    plan = ClientPlan(
        LocalTraining(),
        (*steps, *draw(st.sampled_from([(), (Report("gradient"),)]))),
        keep=frozenset(name for name in start if draw(st.integers(0, 5)) == 0),
        train=draw(st.integers(0, 5)) > 0,
    )
    uploaded = {name: value for name, value in end.items() if plan.train and name not in plan.keep}
    moved = any(not torch.equal(masks[name], held[name]) for name in held) and plan.train
    reported = plan.groups
    update = Update(
        client=3,
        round=draw(st.integers(0, 2**32 - 1)),
        weight=draw(st.integers(1, 1000)),
        params=packed(uploaded, positions_of(masks if moved else held)),
        buffers={name: value + value if name != "on" else ~value for name, value in buffers.items()}
        if plan.train
        else {},
        masks=masks if moved else None,
        extra={group: {name: _normal(draws, value.shape) for name, value in start.items()} for group in reported},
    )
    return Reference(Broadcast(update.round, masked(start, held), buffers, held)), plan, update


def _readjusted(draw: st.DrawFn, draws: np.random.Generator, held: Masks) -> tuple[Readjust, dict[str, Tensor]]:
    """Orders, and masks that obey them; what was held may be more or less than the budget."""
    growth = Growth(grow_from=draw(st.sampled_from(["inactive", "any"])))
    budgets, drop, masks = {}, {}, {}
    for name, mask in held.items():
        active = int(mask.sum())
        budgets[name] = min(max(0, active + draw(st.sampled_from([0, 0, 0, -2, 3]))), mask.numel())
        drop[name] = draw(st.integers(0, budgets[name]))
        masks[name] = readjusted(mask, budgets[name], drop[name], growth, draws)
    return Readjust(1, drop, budgets, growth), masks


def readjusted(mask: Tensor, budget: int, drop: int, growth: Growth, draws: np.random.Generator) -> Tensor:
    """A mask as a client readjusts it, at random: dropped down to budget − drop, grown back up."""
    flat = mask.reshape(-1).numpy().copy()
    surplus = max(0, int(flat.sum()) - (budget - drop))
    flat[draws.choice(np.flatnonzero(flat), surplus, replace=False)] = False
    candidates = np.flatnonzero(~flat) if growth.grow_from == "inactive" else np.arange(len(flat))
    flat[draws.choice(candidates, budget - int(flat.sum()), replace=False)] = True
    return torch.from_numpy(flat).view(mask.shape)


def _normal(draws: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.asarray(draws.standard_normal(shape), dtype=np.float32))


def _some(draws: np.random.Generator, shape: tuple[int, ...], share: float) -> Tensor:
    return torch.from_numpy(np.asarray(draws.random(shape) < share))


def _expected(exchange: Exchange, codec_name: str) -> tuple[Tensors, Mapping[str, Tensors]]:
    """An update's values and reports as a plain number format carries them."""
    _, _, update = exchange
    kind = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}[codec_name]
    params = {name: value.to(kind).to(value.dtype) for name, value in update.params.items()}
    extra = {g: {name: value.to(kind).float() for name, value in values.items()} for g, values in update.extra.items()}
    return params, extra


def _assert_all_but_values(found: Update, update: Update, reference: Reference) -> None:
    assert (found.client, found.round, found.weight) == (update.client, update.round, update.weight)
    assert_same(found.buffers, update.buffers)
    own = [name for name in (update.masks or {}) if name in update.params]
    if any(not torch.equal((update.masks or {})[name], reference.broadcast.masks[name]) for name in own):
        assert found.masks is not None
        assert_same({name: found.masks[name] for name in own}, {name: (update.masks or {})[name] for name in own})
    else:
        assert found.masks is None


every_style = pytest.mark.parametrize(
    ("style", "packing"), [(style, packing) for style in STYLES for packing in ("plain", "deflate")]
)


@pytest.mark.parametrize("codec", ["float32", "bfloat16", "float16"])
@every_style
@settings(max_examples=12)
@given(exchange=exchanges())
def test_an_update_comes_back_in_plain_numbers(exchange: Exchange, codec: str, style: Any, packing: Any) -> None:
    reference, plan, update = exchange
    found = sent_over(update, reference, plan, values=codec, mask=style, packing=packing)
    _assert_all_but_values(found, update, reference)
    params, extra = _expected(exchange, codec)
    assert_same(found.params, params)
    assert list(found.extra) == list(extra)
    for group in extra:
        assert_same(found.extra[group], extra[group])


@pytest.mark.parametrize("codec", ["q8", "q4", "q2"])
@every_style
@settings(max_examples=12)
@given(exchange=exchanges())
def test_a_quantised_update_is_what_was_sent_plus_the_change_within_a_step(
    exchange: Exchange, codec: str, style: Any, packing: Any
) -> None:
    reference, plan, update = exchange
    found = sent_over(update, reference, plan, values=codec, mask=style, packing=packing)
    _assert_all_but_values(found, update, reference)
    positions = positions_of(update.masks or reference.broadcast.masks)
    before = packed(reference.broadcast.params, positions)
    for name, value in update.params.items():
        assert (found.params[name].shape, found.params[name].dtype) == (value.shape, value.dtype)
        step = _steps(CODECS[codec], value.float() - before[name].float())
        rounding = torch.finfo(value.dtype).eps * (1 + value.float().abs())
        assert ((found.params[name].float() - value.float()).abs() <= step * (1 + 1e-5) + rounding).all()
    for group, values in update.extra.items():
        for name, value in values.items():
            assert found.extra[group][name].shape == value.shape
            assert ((found.extra[group][name] - value).abs() <= _steps(CODECS[codec], value) * (1 + 1e-5)).all()


def _steps(codec: object, values: Tensor) -> Tensor:
    """For each value how far apart the levels of its block are."""
    assert isinstance(codec, Quantiser)
    flat = values.reshape(-1)
    return (block_scales(in_blocks([flat])) / codec.top).repeat_interleave(BLOCK)[: len(flat)].reshape(values.shape)


@given(exchange=exchanges())
def test_an_update_that_changed_nothing_comes_back_unchanged_however_few_bits_it_has(exchange: Exchange) -> None:
    reference, plan, update = exchange
    plan = replace(plan, steps=(), train=True, keep=frozenset())
    update = replace(update, params=reference.values, buffers=reference.broadcast.buffers, masks=None)
    assert_same(sent_over(update, reference, plan, values="q2").params, reference.values)


# How large an update can be.


@pytest.mark.parametrize("codec", ["float32", "q2"])
@settings(max_examples=15)
@given(
    level=st.sampled_from([0.5, 0.8, 0.95]),
    alpha=st.sampled_from([0.0, 0.001, 0.01, 0.05, 0.3, 0.5, 0.74, 0.8, 1.0]),
    style=st.sampled_from(STYLES),
    grow_from=st.sampled_from(["inactive", "any"]),
    seed=st.integers(0, 2**32),
)
def test_no_readjustment_of_the_papers_network_exceeds_the_bound(
    codec: str,
    level: float,
    alpha: float,
    style: Any,
    grow_from: Any,
    seed: int,
    mnist_state: Callable[[float], ServerState],
) -> None:
    state, draws, growth = mnist_state(level), np.random.default_rng(seed), Growth(grow_from=grow_from)
    drop = {name: math.floor(alpha * budget) for name, budget in state.budgets.items()}
    # A quarter of the time the server's masks are short of their budgets, as published growth leaves them.
    short = seed % 4 == 0
    held = {name: mask & _some(draws, mask.shape, 0.9) if short else mask for name, mask in state.masks.items()}
    masks = {name: readjusted(held[name], state.budgets[name], drop[name], growth, draws) for name in held}
    reference = Reference(Broadcast(1, masked(state.params, held), {}, held))
    plan = ClientPlan(LocalTraining(), (Readjust(1, drop, state.budgets, growth),))
    update = Update(0, 1, 1, packed(state.params, positions_of(masks)), masks=masks)
    task = asked(reference, plan, client=0, images=1, values=codec, mask=style)
    assert len(encode_update(update, task)) <= largest_update(task)


def test_a_client_that_takes_back_half_of_what_it_dropped_does_not_exceed_the_bound() -> None:
    # It may drop all of its 2000 weights, a set that costs nothing. Half of them is the costliest set there is.
    held = {"w": torch.arange(4000) < 2000}
    moved = {"w": torch.arange(4000) % 2 == 0}
    reference = Reference(Broadcast(7, {"w": torch.zeros(4000)}, {}, held))
    plan = ClientPlan(LocalTraining(), (Readjust(1, {"w": 2000}, {"w": 2000}),))
    task = asked(reference, plan)
    payload = encode_update(Update(5, 7, 1, {"w": torch.ones(2000)}, masks=moved), task)
    assert len(payload) <= largest_update(task) <= len(payload) + 20


def test_the_bound_is_exact_without_a_readjustment() -> None:
    plan = replace(WORK, steps=())
    for codec in general_codecs():
        task = asked(REFERENCE, plan, values=codec)
        assert len(encode_update(replace(UPDATE, masks=None), task)) == largest_update(task)


# One exchange by hand, and everything that can be wrong with its answer.

HELD = {"w": torch.arange(40).reshape(4, 10) % 4 == 0}
MOVED = {"w": HELD["w"].clone()}
MOVED["w"][0, 0], MOVED["w"][3, 9] = False, True
REFERENCE = Reference(
    Broadcast(
        round=7,
        params=masked({"w": torch.arange(40.0).reshape(4, 10), "b": torch.tensor([0.5, -0.5])}, HELD),
        buffers={"mean": torch.tensor([1.0]), "seen": torch.tensor(12)},
        masks=HELD,
    )
)
WORK = ClientPlan(LocalTraining(), (Readjust(1, drop={"w": 1}, budgets={"w": 10}),))
UPDATE = Update(
    client=5,
    round=7,
    weight=100,
    params={"w": torch.linspace(-1, 1, 10), "b": torch.tensor([0.25, -0.0])},
    buffers={"mean": torch.tensor([2.0]), "seen": torch.tensor(13)},
    masks=MOVED,
)
TASK = asked(REFERENCE, WORK)


def wired(task: ClientTask = TASK, **wire: Any) -> ClientTask:
    """The same task, to be answered otherwise."""
    return replace(task, wire=replace(task.wire, **wire))


def planned(plan: ClientPlan) -> ClientTask:
    """The same task with another plan."""
    return replace(TASK, plan=plan)


def encoded(update: Update = UPDATE, task: ClientTask = TASK) -> bytes:
    return encode_update(update, task)


def rewritten(
    payload: bytes,
    *,
    section: bytes | None = None,
    buffers: bytes | None = None,
    values: bytes | None = None,
    **header: Any,
) -> bytes:
    """A payload with its mask section, other sections or header fields replaced, and with a checksum that agrees."""
    old = split(payload, answer_layout(TASK), Kind.UPDATE)
    mask = bytes(old.mask) if section is None else section
    buffers = bytes(old.buffers) if buffers is None else buffers
    values = bytes(old.values) if values is None else values
    lengths = {"mask_bytes": len(mask), "value_bytes": len(values)}
    return join(replace(old.header, **{**lengths, **header}), mask, buffers, values)


def refused(payload: bytes, reason: str, task: ClientTask = TASK) -> None:
    """The payload is undamaged and for this model, and refused for this reason."""
    split(payload, answer_layout(task), Kind.UPDATE)
    with pytest.raises(WireError, match=reason):
        decode_update(payload, task)


def test_the_answer_that_was_asked_for() -> None:
    found = decode_update(encoded(), TASK)
    assert (found.client, found.round, found.weight, found.extra) == (5, 7, 100, {})
    assert_same(found.params, UPDATE.params)
    assert_same(found.buffers, UPDATE.buffers)
    assert_same(found.masks or {}, MOVED)
    assert rewritten(encoded()) == encoded()


@pytest.mark.parametrize(
    ("style", "code"),
    [("difference", MaskCode.DIFFERENCE), ("positions", MaskCode.POSITIONS), ("bitmap", MaskCode.BITMAP)],
)
def test_a_mask_that_moved_goes_in_the_style_asked_for(style: Any, code: MaskCode) -> None:
    assert split(encoded(task=wired(mask=style)), answer_layout(TASK), Kind.UPDATE).header.mask is code


def test_what_arrived_does_not_share_the_payload() -> None:
    payload = bytearray(encoded())
    found = decode_update(memoryview(payload), TASK)
    payload[:] = bytes(len(payload))
    assert_same(found.params, UPDATE.params)


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, b"fdst", "begins with b'fdst'"),
        (4, b"\2", "format version 2"),
        (5, b"\0", "of kind BROADCAST, not UPDATE"),
        (5, b"\2", "unknown code: 2 is not a valid Kind"),
        (6, b"\5", "unknown code: 5 is not a valid MaskCode"),
        (7, b"\x63", "value codec 99"),
        (8, b"\2", "unknown code: 2 is not a valid Packing"),
        (9, b"\1", "reserved bytes"),
        (43, b"\1", "reserved bytes"),
        (24, bytes(8), "for another model"),
        (32, b"\xff\xff\xff\xff", "mask section would have 4294967295 bytes"),
        (36, b"\xff\xff\xff\xff", "value section would have 4294967295 bytes"),
        (36, b"\x2f", "its header speaks of"),
        (55, b"\1", "padding between sections is not zero"),
    ],
)
def test_a_wrong_header_is_refused_though_its_checksum_agrees(place: int, value: bytes, reason: str) -> None:
    payload = bytearray(encoded())
    payload[place : place + len(value)] = value
    payload[44:48] = zlib.crc32(payload[:44] + payload[48:]).to_bytes(4, "little")
    with pytest.raises(WireError, match=reason):
        decode_update(memoryview(payload), TASK)


def test_a_damaged_payload_is_refused() -> None:
    with pytest.raises(WireError, match="checksum does not match"):
        decode_update(encoded()[:-1] + b"\0", TASK)


def test_another_round_is_refused() -> None:
    refused(encoded(replace(UPDATE, round=6)), "the update is for round 6, this is round 7")


@pytest.mark.parametrize("weight", [0, 601, 2**32 - 1])
def test_a_weight_that_cannot_be_is_refused(weight: int) -> None:
    refused(encoded(replace(UPDATE, weight=weight)), f"claims weight {weight}, allowed is 1 to 600")


def test_the_largest_weight_is_allowed() -> None:
    assert decode_update(encoded(replace(UPDATE, weight=600)), TASK).weight == 600


def test_an_update_without_any_mask_code_is_refused() -> None:
    refused(rewritten(encoded(), section=b"", mask=MaskCode.ABSENT, reference=0), "other than ABSENT")


@pytest.mark.parametrize("style", STYLES)
def test_a_reference_to_another_mask_is_refused(style: Any) -> None:
    task = wired(mask=style)
    refused(rewritten(encoded(task=task), reference=0x1234), "refers to mask 00001234, here is", task)


def test_the_same_mask_has_no_section() -> None:
    same = encoded(replace(UPDATE, masks=None))
    assert decode_update(same, TASK).masks is None
    refused(rewritten(same, section=b"\0"), "has a mask section")


SHORT = replace(UPDATE, params={name: torch.zeros(len(value)) for name, value in UPDATE.params.items()})
"""Deflated, its values leave room for a mask or for more values, before it is too long for an answer."""


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("orders", [(), (Readjust(1, drop={"b": 1}, budgets={"b": 1}),)])
def test_a_mask_that_nobody_asked_for_is_refused(style: Any, orders: tuple[Readjust, ...]) -> None:
    task = wired(planned(replace(WORK, steps=orders)), mask=style, packing="deflate")
    refused(encoded(SHORT, task), "w comes with a mask of its own, which nobody asked for", task)


@pytest.mark.parametrize("style", ["positions", "bitmap"])
def test_a_mask_for_a_dense_layer_is_refused(style: Any) -> None:
    masks, task = {**MOVED, "b": torch.tensor([True, True])}, wired(mask=style)
    refused(encoded(replace(UPDATE, masks=masks), task), "b comes with a mask, but is dense", task)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("place", "value", "count"), [((3, 9), False, 9), ((0, 1), True, 11)])
def test_a_mask_off_its_budget_is_refused(style: Any, place: tuple[int, int], value: bool, count: int) -> None:
    mask = MOVED["w"].clone()
    mask[place] = value
    update = replace(SHORT, masks={"w": mask}, params={**SHORT.params, "w": torch.zeros(count)})
    task = wired(mask=style, packing="deflate")
    refused(encoded(update, task), f"the mask of w keeps {count} weights, its budget is 10", task)


@pytest.mark.parametrize(("count", "allowed"), [(7, False), (8, True), (9, True), (10, True), (11, False)])
def test_published_growth_may_fall_short_of_its_budget_by_what_was_dropped(count: int, allowed: bool) -> None:
    orders = Readjust(1, drop={"w": 2}, budgets={"w": 10}, growth=Growth(grow_from="any"))
    task = wired(planned(replace(WORK, steps=(orders,))), packing="deflate")
    held = HELD["w"].reshape(-1).nonzero().reshape(-1).tolist()
    others = (~HELD["w"]).reshape(-1).nonzero().reshape(-1).tolist()
    left = 3 if count < 8 else 2
    kept = torch.tensor(held[left:] + others[: count - 10 + left])
    masks = {"w": torch.zeros(40, dtype=torch.bool).index_fill(0, kept, True).reshape(4, 10)}
    payload = encoded(replace(SHORT, masks=masks, params={**SHORT.params, "w": torch.zeros(count)}), task)
    if allowed:
        assert_same(decode_update(payload, task).masks or {}, masks)
    else:
        refused(payload, f"the mask of w keeps {count} weights, its budget is 10", task)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("grow_from", ["inactive", "any"])
def test_more_may_not_leave_and_enter_than_was_asked(style: Any, grow_from: Any) -> None:
    """The budget is kept, but two weights are exchanged where one was to be: clients do not choose their masks."""
    orders = Readjust(1, drop={"w": 1}, budgets={"w": 10}, growth=Growth(grow_from=grow_from))
    task = wired(planned(replace(WORK, steps=(orders,))), mask=style)
    mask = MOVED["w"].clone()
    mask[0, 4], mask[0, 5] = False, True
    update = replace(UPDATE, masks={"w": mask})
    refused(encoded(update, task), "of w 2 weights left and 2 entered, at most 1 and 1 were to", task)


# ‖w, b‖² = 4² + 8² + … + 36² + 0.5² + 0.5² = 16·285 + 0.5, and so the norm is 67.5315; the weights are 0 in the answer.
@pytest.mark.parametrize(("times", "allowed"), [(0.0, True), (2.5, True), (1.01, True), (0.99, False)])
def test_an_update_far_from_what_was_sent_is_refused(times: float, allowed: bool) -> None:
    update = replace(UPDATE, masks=None, params={"w": torch.zeros(10), "b": torch.zeros(2)})
    task = wired(max_change=times)
    if allowed:
        assert decode_update(encoded(update), task).weight == 100
    else:
        refused(encoded(update), r"its weights are 67\.5 away .* at most 66\.9 allowed \(wire.max_change\)", task)


def test_what_has_grown_counts_from_zero() -> None:
    """Where a weight has entered 0 was sent; what left is not missed. 700 is beyond ten times 67.53."""
    values = [*torch.arange(4.0, 40.0, 4.0).tolist(), 700.0]
    grown = replace(UPDATE, params={"w": torch.tensor(values), "b": torch.tensor([0.5, -0.5])})
    refused(encoded(grown), r"its weights are 700 away", replace(TASK, wire=WireConfig()))
    less = replace(grown, params={**grown.params, "w": torch.tensor([*values[:-1], 600.0])})
    assert decode_update(encoded(less), replace(TASK, wire=WireConfig())).weight == 100


def test_a_layer_whose_mask_is_not_sent_keeps_the_one_it_had() -> None:
    params = {"v": torch.ones(40), "w": torch.ones(40)}
    held = {name: torch.arange(40) < 10 for name in params}
    reference = Reference(Broadcast(7, params, {}, held))
    plan = ClientPlan(LocalTraining(), (Readjust(1, {"v": 1, "w": 1}, {"v": 10, "w": 10}),))
    moved = {"w": (torch.arange(40) < 11) & (torch.arange(40) > 0)}
    update = Update(5, 7, 1, {name: torch.ones(10) for name in params}, masks=moved)
    task = asked(reference, plan)
    found = decode_update(encoded(update, task), task)
    assert_same(found.masks or {}, {"v": held["v"], "w": moved["w"]})


@pytest.mark.parametrize("codec", general_codecs())
def test_fewer_values_than_the_mask_keeps_are_refused(codec: str) -> None:
    task = wired(values=codec)
    payload = encoded(task=task)
    values = bytes(split(payload, answer_layout(TASK), Kind.UPDATE).values)
    for wrong in (values[:-1], values[: len(values) // 2], b""):
        reason = f"the value section has {len(wrong)} bytes, {len(values)} are expected"
        refused(rewritten(payload, values=wrong), reason, task)


ROOMY = wired(mask="positions")
"""A mask that travels as positions may be longer than this one is: that leaves room for more values."""


def test_more_values_than_the_mask_keeps_are_refused() -> None:
    payload = encoded(task=ROOMY)
    values = bytes(split(payload, answer_layout(TASK), Kind.UPDATE).values)
    refused(rewritten(payload, values=values + b"\0"), "the value section has 49 bytes, 48 are expected", ROOMY)


def deflated(data: bytes) -> bytes:
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    return coder.compress(data) + coder.flush()


def test_deflated_values_unpack_to_what_the_mask_keeps_and_no_more() -> None:
    payload = encoded(task=ROOMY)
    values = bytes(split(payload, answer_layout(TASK), Kind.UPDATE).values)
    packed_values = rewritten(payload, values=deflated(values), packing=Packing.DEFLATE)
    assert_same(decode_update(packed_values, ROOMY).params, UPDATE.params)
    for section in (deflated(values)[:-1], deflated(values) + b"\0", deflated(bytes(10_000)), deflated(values[:-1])):
        refused(rewritten(payload, values=section, packing=Packing.DEFLATE), "does not unpack to 48 bytes", ROOMY)


NOT_AVERAGED = [float("nan"), float("inf"), -float("inf"), 3e38, LARGEST_TERM / 64, -LARGEST_TERM / 64]


@pytest.mark.parametrize("value", NOT_AVERAGED)
@pytest.mark.parametrize("name", ["w", "b"])
def test_values_that_cannot_be_averaged_are_refused(value: float, name: str) -> None:
    params = {**UPDATE.params, name: UPDATE.params[name].clone()}
    params[name][1] = value
    refused(encoded(replace(UPDATE, params=params)), f"{name} .*holds .*: not a number, or too large to average")


@pytest.mark.parametrize("value", NOT_AVERAGED)
def test_buffers_that_cannot_be_averaged_are_refused(value: float) -> None:
    buffers = {**UPDATE.buffers, "mean": torch.tensor([value])}
    refused(encoded(replace(UPDATE, buffers=buffers)), "mean .*holds .*: not a number, or too large to average")


@pytest.mark.parametrize("count", [int(LARGEST_TERM / 64), -int(LARGEST_TERM / 64), 2**63 - 1, -(2**63)])
def test_counters_that_cannot_be_averaged_are_refused(count: int) -> None:
    buffers = {**UPDATE.buffers, "seen": torch.tensor(count)}
    refused(encoded(replace(UPDATE, buffers=buffers)), "seen .*holds .*: not a number, or too large to average")


@pytest.mark.parametrize("value", NOT_AVERAGED)
def test_reports_that_cannot_be_averaged_are_refused(value: float) -> None:
    plan = WORK.adding(Report("gradient"))
    gradient = {"w": torch.full((4, 10), value), "b": torch.zeros(2)}
    update = replace(UPDATE, extra={"gradient": gradient})
    task = planned(plan)
    refused(encoded(update, task), "w .*holds .*: not a number, or too large to average", task)


SQUARED = WORK.adding(Report("squared-gradient"))


def squared(values: torch.Tensor) -> Update:
    return replace(UPDATE, extra={"squared-gradient": {"w": values.reshape(4, 10), "b": torch.zeros(2)}})


def test_squares_below_zero_are_refused() -> None:
    spoilt = squared(torch.tensor([-1e-30] + [1.0] * 39))
    task = planned(SQUARED)
    refused(encoded(spoilt, task), "w of squared-gradient holds -1e-30, which cannot be negative", task)
    assert decode_update(encoded(squared(torch.ones(40)), task), task).extra


def test_a_variance_below_zero_is_refused() -> None:
    """BatchNorm would take its root, and every test of the model would be of what is not a number."""
    sent = Broadcast(7, {"w": torch.ones(4)}, {"norm.running_mean": torch.zeros(2), "norm.running_var": torch.ones(2)})
    task = asked(Reference(sent), ClientPlan(LocalTraining()))
    update = Update(5, 7, 1, sent.params, sent.buffers)
    fine = replace(update, buffers={**sent.buffers, "norm.running_mean": torch.tensor([-2.0, 0.0])})
    assert decode_update(encoded(fine, task), task).buffers["norm.running_mean"][0] == -2
    spoilt = replace(update, buffers={**sent.buffers, "norm.running_var": torch.tensor([1.0, -1e9])})
    refused(encoded(spoilt, task), "norm.running_var of buffers holds -1e.09, which cannot be", task)


@pytest.mark.parametrize(("value", "allowed"), [(0.0, True), (1.0, True), (0.5, False), (-3.0, False)])
def test_a_report_of_what_is_kept_holds_zeros_and_ones(value: float, allowed: bool) -> None:
    plan = WORK.adding(InitialPruning(rounds=1, every=1, prunable=0.3, times={}, constant=1.0))
    kept = {"w": torch.full((4, 10), value), "b": torch.ones(2)}
    payload = encoded(replace(UPDATE, extra={"kept": kept}), planned(plan))
    if allowed:
        assert_same(decode_update(payload, planned(plan)).extra["kept"], kept)
    else:
        refused(payload, "w of kept holds other numbers than 0 and 1", planned(plan))


@pytest.mark.parametrize("codec", ["float32", "bfloat16", "q8", "q4", "q2"])
def test_squares_of_small_gradients_arrive_as_squares(codec: str) -> None:
    """Of gradients 10⁻⁶ … 10⁻⁴: none below zero, and right on average. In float16 all of them would be 0."""
    squares = torch.logspace(-6, -4, 40).square()
    assert not squares.half().any()
    found = torch.zeros(40)
    for seed in range(200):
        task = replace(wired(planned(SQUARED), values=codec), seed=seed)
        arrived = decode_update(encoded(squared(squares), task), task).extra["squared-gradient"]["w"].reshape(-1)
        assert arrived.min() >= 0
        found += arrived / 200
    # Of q2 each value is 0 or the largest, 10⁻⁸: the mean of 200 is off by at most 0.5·10⁻⁸/√200, four times over.
    torch.testing.assert_close(found, squares, rtol=0.01, atol=2e-9 if codec.startswith("q") else 0.0)


@pytest.mark.parametrize("codec", ["q8", "q4", "q2"])
def test_a_change_that_is_too_large_is_refused(codec: str) -> None:
    params, task = {**UPDATE.params, "w": torch.full((10,), LARGEST_TERM / 64)}, wired(values=codec)
    payload = encoded(replace(UPDATE, params=params), task)
    refused(payload, "w .*holds .*: not a number, or too large to average", task)


def test_a_parameter_of_half_precision_that_overflows_is_refused() -> None:
    reference = Reference(Broadcast(7, {"h": torch.zeros(2, dtype=torch.float16)}))
    wide = Reference(Broadcast(7, {"h": torch.zeros(2)}))
    plan = ClientPlan(LocalTraining())
    payload = encoded(Update(5, 7, 1, {"h": torch.tensor([1.0, 1e5])}), asked(wide, plan))
    sections = split(payload, wide.answer_layout(plan), Kind.UPDATE)
    head = replace(sections.header, fingerprint=reference.answer_layout(plan).fingerprint)
    refused(join(head, b"", b"", bytes(sections.values)), "h .*holds inf", asked(reference, plan))


@pytest.mark.parametrize("weight", [1, 100, 600])
def test_whatever_is_let_through_can_be_summed(weight: int) -> None:
    most = float(np.nextafter(np.float32(LARGEST_TERM / weight), np.float32(0)))
    plan = WORK.adding(Report("gradient"))
    update = replace(
        UPDATE,
        weight=weight,
        params={"w": torch.full((10,), most), "b": torch.full((2,), -most)},
        buffers={"mean": torch.tensor([most]), "seen": torch.tensor(math.ceil(LARGEST_TERM / weight) - 1)},
        extra={"gradient": {"w": torch.full((4, 10), -most), "b": torch.full((2,), most)}},
    )
    found = decode_update(encoded(update, planned(plan)), planned(plan))
    total = SparseSum(HELD)
    for _ in range(int(ROOM / LARGEST_TERM) - 1):
        total.add(found)
    assert total.mean("gradient")["b"].tolist() == pytest.approx([most, most])


def test_a_client_that_keeps_its_masked_layers_sends_no_mask() -> None:
    plan = replace(WORK, keep=frozenset({"w"}))
    update = replace(UPDATE, params={"b": UPDATE.params["b"]})
    found = decode_update(encoded(update, planned(plan)), planned(plan))
    assert found.masks is None
    assert_same(found.params, update.params)


def test_a_parameter_that_stays_with_the_client_cannot_be_sent() -> None:
    task = replace(ROOMY, plan=replace(WORK, keep=frozenset({"b"})))
    with pytest.raises(WireError, match="for another model"):
        decode_update(encoded(task=ROOMY), task)


def test_only_the_codec_that_was_asked_for_is_taken() -> None:
    task = wired(values="q4")
    refused(encoded(task=wired(values="q2")), "values have codec 3, asked for was q4", task)
    assert decode_update(encoded(task=task), task).weight == UPDATE.weight


def test_an_update_longer_than_the_longest_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(WireError, match=r"the update has \d+ bytes, the largest possible \d+"):
        decode_update(encoded(UPDATE) + bytes(10_000), replace(TASK, wire=WireConfig()))


PARTIAL = Readjust(1, {"w": 1}, {"w": 10})


@pytest.mark.parametrize("style", STYLES)
def test_a_layer_that_was_not_to_be_readjusted_keeps_its_mask(style: Any) -> None:
    params = {"v": torch.ones(40), "w": torch.ones(40)}
    held = {name: torch.arange(40) < 10 for name in params}
    moved = (torch.arange(40) < 11) & (torch.arange(40) > 0)
    reference = Reference(Broadcast(7, params, {}, held))
    plan = ClientPlan(LocalTraining(), (PARTIAL,))
    update = Update(5, 7, 1, {name: torch.ones(10) for name in params}, masks={"v": held["v"], "w": moved})
    assert_same(sent_over(update, reference, plan, mask=style).masks or {}, {"v": held["v"], "w": moved})
    both, task = replace(update, masks={"v": moved, "w": moved}), asked(reference, plan, mask=style)
    refused(encoded(both, task), "v comes with a mask of its own, which nobody asked for", task)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float8_e5m2, torch.bool, torch.int8])
def test_buffers_of_any_real_format_travel(dtype: torch.dtype) -> None:
    odd = torch.tensor([0, 1, 1]).to(dtype)
    reference = Reference(Broadcast(7, {"w": torch.ones(2)}, {"odd": odd}))
    plan = ClientPlan(LocalTraining())
    update = Update(5, 7, 1, {"w": torch.zeros(2)}, {"odd": odd})
    found = sent_over(update, reference, plan).buffers["odd"]
    assert found.dtype is dtype
    assert found.double().tolist() == [0, 1, 1]


def test_a_difference_to_no_mask_is_refused() -> None:
    task = asked(Reference(Broadcast(7, {"w": torch.ones(2)})), ClientPlan(LocalTraining()))
    payload = encoded(Update(5, 7, 1, {"w": torch.zeros(2)}), task)
    sections = split(payload, answer_layout(task), Kind.UPDATE)
    head = replace(sections.header, mask=MaskCode.DIFFERENCE)
    refused(join(head, b"", b"", bytes(sections.values)), "the model has none", task)
