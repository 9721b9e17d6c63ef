"""Where weights lie in the row of a model, by hand, and for how long that is known."""

import pytest
import torch

from feddst.core import positions_of
from feddst.engines.stacked.columns import Columns
from feddst.engines.stacked.flat import Flat
from feddst.wire import Layout, MaskFacts, model_layout

SHAPES = {"w": (2, 3), "b": (2,), "v": (3,)}
MASKS = {"w": torch.tensor([[True, False, True], [False, False, True]]), "v": torch.tensor([False, True, True])}
WANTED = [32, 33, 65, 66, 0, 2, 5]
"""b, v, w: in the order of names; tensors begin at multiples of 32."""


@pytest.fixture
def columns() -> Columns:
    return Columns(Flat(SHAPES), torch.device("cpu"))


@pytest.fixture
def layout() -> Layout:
    return model_layout({name: torch.zeros(shape) for name, shape in SHAPES.items()}, {})


def test_by_hand(columns: Columns, layout: Layout) -> None:
    assert columns.at(positions_of(MASKS), layout).tolist() == WANTED
    assert columns.at({}, layout).tolist() == [32, 33, 64, 65, 66, 0, 1, 2, 3, 4, 5]
    assert columns.at({}, Layout(())).tolist() == []


def test_a_bitmap_says_the_same_as_its_masks(columns: Columns, layout: Layout) -> None:
    facts = MaskFacts(MASKS, layout)
    assert columns.under(facts.bitmap_row, layout).tolist() == WANTED
    again = MaskFacts(MASKS, layout)
    assert columns.under(again.bitmap_row, layout, again.positions).tolist() == WANTED
    assert columns.under(torch.empty(0, dtype=torch.uint8), layout).tolist() == columns.at({}, layout).tolist()


def test_they_are_known_while_somebody_has_the_bitmap(columns: Columns, layout: Layout) -> None:
    bitmap = MaskFacts(MASKS, layout).bitmap_row
    assert columns.under(bitmap, layout) is columns.under(bitmap, layout)
    assert len(columns._known) == 1
    del bitmap
    assert not columns._known
