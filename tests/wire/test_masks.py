"""Mask sections: every code and odd shape there and back, sections by hand, and the size of a readjustment."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feddst.core import Masks, ServerState, positions_of
from feddst.errors import WireError
from feddst.wire import Field, Layout, model_layout
from feddst.wire.bits import Bits, pack
from feddst.wire.masks import (
    MaskCode,
    MaskStyle,
    any_count,
    decode_bitmap,
    decode_masks,
    encode_bitmap,
    encode_masks,
    most_mask_bytes,
)

Shapes = dict[str, tuple[int, ...]]
ODD: list[tuple[int, ...]] = [(0,), (3, 0), (), (1,), (1, 1), (5,), (4, 5), (2, 3, 3), (9, 30)]


def layout_of(shapes: Shapes) -> Layout:
    return Layout(tuple(Field("params", name, shape, torch.float32) for name, shape in shapes.items()))


def flags(*rows: str) -> torch.Tensor:
    return torch.tensor([[c == "1" for c in row] for row in rows])


def as_bits(text: str) -> Bits:
    return np.array([int(bit) for bit in text], dtype=np.uint8)


def same(a: Masks, b: Masks) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def there_and_back(masks: Masks, layout: Layout, style: MaskStyle, reference: Masks | None) -> tuple[MaskCode, int]:
    """Which code was used, in how many bytes, after checking that the masks come back."""
    code, section = encode_masks(masks, layout, style, reference)
    shown: dict[str, int] = {}
    found = decode_masks(code, memoryview(section), layout, reference, shown.__setitem__)
    assert same(found, masks)
    known = positions_of(reference or {})
    assert encode_masks(masks, layout, style, reference, known) == (code, section)
    assert same(decode_masks(code, memoryview(section), layout, reference, any_count, known), masks)
    assert all(mask.dtype is torch.bool for mask in found.values())
    if code not in (MaskCode.ABSENT, MaskCode.SAME):
        assert shown == {name: int(mask.sum()) for name, mask in masks.items()}
    assert len(section) <= most_mask_bytes(layout)
    return code, len(section)


@st.composite
def layers(draw: st.DrawFn) -> tuple[Layout, Masks, Masks]:
    """Layers of odd shapes, of which some are masked, with two masks each."""
    shapes = {f"layer{i}": shape for i, shape in enumerate(draw(st.lists(st.sampled_from(ODD), max_size=5)))}
    masked = [name for name in shapes if draw(st.booleans())]
    new, old = ({name: draw(mask_of(shapes[name])) for name in masked} for _ in range(2))
    return layout_of(shapes), new, old


def mask_of(shape: tuple[int, ...]) -> st.SearchStrategy[torch.Tensor]:
    shares = st.sampled_from([0.0, 0.05, 0.2, 0.5, 0.9, 1.0])
    return st.tuples(shares, st.integers(0, 2**32)).map(
        lambda drawn: torch.from_numpy(np.array(np.random.default_rng(drawn[1]).random(shape) < drawn[0]))
    )


styles = st.sampled_from(["difference", "positions", "bitmap"])


@settings(max_examples=50)
@given(layers(), styles)
def test_masks_come_back_whatever_the_other_end_holds(drawn: tuple[Layout, Masks, Masks], style: MaskStyle) -> None:
    layout, new, old = drawn
    there_and_back(new, layout, style, None)
    there_and_back(new, layout, style, old)
    expected = MaskCode.SAME if new else MaskCode.ABSENT
    assert there_and_back(new, layout, style, dict(new)) == (expected, 0)


@settings(max_examples=50)
@given(layers())
def test_a_bitmap_comes_back(drawn: tuple[Layout, Masks, Masks]) -> None:
    layout, masks, _ = drawn
    found = decode_bitmap(encode_bitmap(masks, layout), layout)
    assert same(found or {}, masks)
    assert (found is None) == (not masks)


@settings(max_examples=50)
@given(layers())
def test_the_shorter_of_difference_and_positions_is_sent(drawn: tuple[Layout, Masks, Masks]) -> None:
    layout, new, old = drawn
    code, size = there_and_back(new, layout, "difference", old)
    positions = len(encode_masks(new, layout, "positions", None)[1])
    assert size <= positions
    if code is MaskCode.POSITIONS:
        assert size == positions


def test_a_small_move_is_a_difference_and_an_unlike_mask_is_positions() -> None:
    layout, held = layout_of({"a": (200,)}), torch.arange(200) < 150
    assert there_and_back({"a": torch.arange(200) < 149}, layout, "difference", {"a": held})[0] is MaskCode.DIFFERENCE
    # Every fourth weight: 150 bits as a set of its own, but 112 of the 150 leave, which alone takes a bitmap of 150.
    assert there_and_back({"a": torch.arange(200) % 4 == 0}, layout, "difference", {"a": held})[0] is MaskCode.POSITIONS


@pytest.mark.parametrize(
    ("style", "code"), [("bitmap", MaskCode.BITMAP), ("positions", MaskCode.POSITIONS), ("difference", MaskCode(3))]
)
def test_without_a_reference_a_mask_goes_whole(style: MaskStyle, code: MaskCode) -> None:
    layout = layout_of({"a": (2, 3), "b": (2,), "c": (4,)})
    masks = {"a": flags("101", "001"), "c": flags("0010")[0]}
    assert there_and_back(masks, layout, style, None)[0] is code


def test_a_bitmap_by_hand() -> None:
    layout = layout_of({"a": (2, 3), "b": (2,), "c": (4,)})
    masks = {"a": flags("101", "001"), "c": flags("0010")[0]}
    # Which layers: 1 0 1. Then 101001 and 0010; the first bit is the lowest.
    assert encode_bitmap(masks, layout) == bytes([0b00101101, 0b01001])


def test_positions_by_hand() -> None:
    layout = layout_of({"a": (16,), "b": (2,)})
    mask = torch.zeros(16, dtype=torch.bool)
    mask[[3, 4, 15]] = True
    # Which layers: 1 0. Three weights as γ of 4: 00100. The set as in test_bits: 110001 11001.
    bits = "10" + "00100" + "110001" + "11001"
    section = encode_masks({"a": mask}, layout, "positions", None)[1]
    assert section == pack([as_bits(bits)])


def test_a_difference_by_hand() -> None:
    held = torch.zeros(32, dtype=torch.bool)
    held[:8] = True
    moved = held.clone()
    moved[[2, 9]] = torch.tensor([False, True])
    # One leaves (γ of 2: 010), none more enters than leaves (1). Weight 2 of 8 held: r = 2 (2² ≥ 0.48·7½), remainder 2
    # (01), quotient 0. Of the 24 others, 9 is number 1: r = 4 (2⁴ ≥ 0.48·23½), remainder 1 (1000), quotient 0.
    bits = "010" + "1" + "01" + "1000" + "1" + "1"
    code, section = encode_masks({"a": moved}, layout_of({"a": (32,)}), "difference", {"a": held})
    assert code is MaskCode.DIFFERENCE
    assert section == pack([as_bits(bits)])


@pytest.mark.parametrize("code", [MaskCode.SAME, MaskCode.DIFFERENCE])
def test_a_reference_that_is_not_held_is_missed(code: MaskCode) -> None:
    with pytest.raises(WireError, match="refers to a mask that is not held here"):
        decode_masks(code, memoryview(b""), layout_of({"a": (4,)}), None, any_count)


@pytest.mark.parametrize("code", [MaskCode.ABSENT, MaskCode.SAME])
def test_a_code_without_a_section_has_none(code: MaskCode) -> None:
    with pytest.raises(WireError, match="has a mask section of 1 bytes"):
        decode_masks(code, memoryview(b"\0"), layout_of({"a": (4,)}), {"a": flags("1100")[0]}, any_count)


def test_a_layer_that_was_masked_and_is_dense_now_is_not_taken_from_the_reference() -> None:
    layout = layout_of({"a": (4,), "b": (40,)})
    held = {"a": flags("1100")[0], "b": torch.arange(40) < 20}
    for now in (held["b"], torch.arange(40) < 19):
        assert there_and_back({"b": now}, layout, "difference", held)[0] is MaskCode.POSITIONS


def test_a_layer_that_the_reference_does_not_mask_is_sent_whole() -> None:
    layout = layout_of({"a": (4,), "b": (40,)})
    held = {"b": torch.arange(40) < 20}
    assert there_and_back({"a": flags("1100")[0], **held}, layout, "difference", held)[0] is MaskCode.POSITIONS


def test_layers_of_the_reference_that_the_layout_lacks_do_not_matter() -> None:
    layout = layout_of({"b": (40,)})
    held = {"a": flags("1100")[0], "b": torch.arange(40) < 20}
    code, section = encode_masks({"b": torch.arange(40) < 19}, layout, "difference", held)
    assert code is MaskCode.DIFFERENCE
    found = decode_masks(code, memoryview(section), layout, held, any_count)
    assert same(found, {"b": torch.arange(40) < 19})


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(WireError, match=r"the mask of a has shape \(1, 4\), the layer \(4,\)"):
        encode_masks({"a": flags("1100")}, layout_of({"a": (4,)}), "bitmap", None)


@pytest.mark.parametrize(
    ("code", "bits", "reason"),
    [
        (MaskCode.BITMAP, "00", "names no layer"),
        (MaskCode.POSITIONS, "00", "names no layer"),
        (MaskCode.BITMAP, "", "ends early"),
        (MaskCode.POSITIONS, "", "ends early"),
        (MaskCode.BITMAP, "10" + "1111" + "1", "goes on after its end"),
        (MaskCode.POSITIONS, "10" + "00101", "counts 5 weights of a where there are 4"),
        (MaskCode.POSITIONS, "10" + "00000000", "too long or cut short"),
        (MaskCode.DIFFERENCE, "00100", "counts 3 weights of a where there are 2"),
        (MaskCode.DIFFERENCE, "1" + "00101", "counts 3 weights of a where there are 2"),
        (MaskCode.DIFFERENCE, "1" + "011", "counts -1 weights of a where there are 2"),
    ],
)
def test_sections_that_cannot_be_by_hand(code: MaskCode, bits: str, reason: str) -> None:
    layout, held = layout_of({"a": (4,), "b": (2,)}), {"a": flags("1100")[0]}
    section = pack([as_bits(bits)])
    with pytest.raises(WireError, match=reason):
        decode_masks(code, memoryview(section), layout, held, any_count)


@pytest.mark.parametrize("style", ["difference", "positions", "bitmap"])
def test_whoever_checks_the_counts_can_refuse_them(style: MaskStyle) -> None:
    def refuse(layer: str, count: int) -> None:
        raise WireError(f"{layer} {count}")

    layout = layout_of({"a": (100,)})
    code, section = encode_masks({"a": torch.arange(100) < 21}, layout, style, {"a": torch.arange(100) < 20})
    with pytest.raises(WireError, match="a 21"):
        decode_masks(code, memoryview(section), layout, {"a": torch.arange(100) < 20}, refuse)


@settings(max_examples=50)
@given(layers(), styles)
def test_every_truncation_is_refused(drawn: tuple[Layout, Masks, Masks], style: MaskStyle) -> None:
    layout, new, old = drawn
    code, section = encode_masks(new, layout, style, old)
    for end in range(len(section)):
        with pytest.raises(WireError):
            decode_masks(code, memoryview(section)[:end], layout, old, any_count)


@settings(max_examples=50)
@given(layers(), st.sampled_from([MaskCode.BITMAP, MaskCode.POSITIONS, MaskCode.DIFFERENCE]), st.binary(max_size=80))
def test_any_bytes_are_masks_of_the_counts_shown_or_refused(
    drawn: tuple[Layout, Masks, Masks], code: MaskCode, section: bytes
) -> None:
    layout, _, old = drawn
    shown: dict[str, int] = {}
    try:
        masks = decode_masks(code, memoryview(section), layout, old, shown.__setitem__)
    except WireError:
        return
    shapes = {field.name: field.shape for field in layout.params}
    assert shown == {name: int(mask.sum()) for name, mask in masks.items()}
    assert all(tuple(mask.shape) == shapes[name] and mask.dtype is torch.bool for name, mask in masks.items())


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.05])
def test_a_readjustment_of_the_papers_network_costs_at_most_a_tenth_more_than_it_must(
    alpha: float, level: float, mnist_state: Callable[[float], ServerState]
) -> None:
    state = mnist_state(level)
    layout = model_layout(state.params, state.buffers)
    best, moved = 0.0, {}
    draws = np.random.default_rng(1)
    for name, mask in state.masks.items():
        size, active = mask.numel(), int(mask.sum())
        count = min(math.floor(alpha * active), size - active)
        best += math.log2(math.comb(active, count)) + math.log2(math.comb(size - active, count))
        moved[name] = _readjusted(mask, count, draws)
    code, size = there_and_back(moved, layout, "difference", state.masks)
    assert code is MaskCode.DIFFERENCE
    assert 8 * size <= 1.1 * best


def _readjusted(mask: torch.Tensor, count: int, draws: np.random.Generator) -> torch.Tensor:
    """The mask with so many random weights dropped and as many grown."""
    flat = mask.reshape(-1).numpy().copy()
    active, inactive = np.flatnonzero(flat), np.flatnonzero(~flat)
    flat[draws.choice(active, count, replace=False)] = False
    flat[draws.choice(inactive, count, replace=False)] = True
    return torch.from_numpy(flat).view(mask.shape)
