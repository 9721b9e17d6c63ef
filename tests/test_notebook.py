"""Tables and curves are well-formed and escaped; a notebook is a kernel, not IPython on a terminal."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from feddst.notebook import Shown, aligned, curve_svg, facts_html, in_lines, in_notebook, table_html


def test_facts_in_lines_and_as_html() -> None:
    facts = [("a", "1 < 2"), ("long", "x & y")]
    assert in_lines("T", facts) == "T\n  a     1 < 2\n  long  x & y"
    tree = ElementTree.fromstring(facts_html("T", facts, below="<p>below</p>"))
    assert [cell.text for cell in tree.iter("td")] == ["a", "1 < 2", "long", "x & y"]
    assert [place.text for place in (*tree.iter("b"), *tree.iter("p"))] == ["T", "below"]


def test_a_table_has_its_heading_first() -> None:
    rows = [["name", "n"], ["<x>", "10"]]
    tree = ElementTree.fromstring(table_html(rows, below=["a & b"]))
    assert [cell.text for cell in tree.iter("th")] == ["name", "n"]
    assert [cell.text for cell in tree.iter("td")] == ["<x>", "10"]
    assert tree.findtext("div") == "a & b"
    assert aligned(rows) == ["name   n", "<x>   10"]


def test_a_curve_by_hand() -> None:
    """280 by 56 with margins of 4: x from 4 to 276, y from 52 (the lowest) to 4 (the highest)."""
    line = ElementTree.fromstring(curve_svg([(1, 0.0), (2, 1.0), (3, 0.5)], "score")).find("polyline")
    assert line is not None
    assert line.attrib["points"] == "4.0,52.0 140.0,4.0 276.0,28.0"
    assert curve_svg([(1, 0.5)], "score") == ""
    assert "276.0,28.0" in curve_svg([(1, 0.5), (2, 0.5)], "a level line")


def test_what_is_shown_is_html_or_text() -> None:
    shown = Shown("<b>x</b>", "x")
    assert (repr(shown), shown._repr_html_()) == ("x", "<b>x</b>")


@pytest.mark.parametrize(
    ("shell", "expected"), [(None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=object()), True)]
)
def test_a_notebook_is_a_kernel(shell: Any, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert in_notebook() is expected


def test_without_ipython_it_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
