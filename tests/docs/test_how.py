"""The pictures of docs/how.md show what its blocks compute, and its table of symbols has the settings of the presets.

That its blocks run and print what it says is tested with the other pages.
"""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import feddst
from feddst.options import flatten

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how.md").read_text()


@pytest.fixture(scope="module")
def script(script_named: Callable[[str], ModuleType]) -> ModuleType:
    """The script that draws the pictures."""
    return script_named("draw_pictures")


@pytest.fixture(scope="module")
def values(script: ModuleType) -> dict[str, Any]:
    """What the blocks of how.md compute."""
    found: dict[str, Any] = script.page_values()
    return found


def test_pictures_show_what_the_page_computes(script: ModuleType, values: dict[str, Any], tmp_path: Path) -> None:
    shown = set(re.findall(r"\(pictures/(\w+)\.svg\)", PAGE))
    assert shown == set(script.PICTURES) == {path.stem for path in (ROOT / "docs/pictures").glob("*.svg")}
    for name, (draw, describe) in script.PICTURES.items():
        draw(values, tmp_path / f"{name}.svg")
        for folder in (tmp_path, ROOT / "docs/pictures"):
            assert f"<dc:description>{describe(values)}</dc:description>" in (folder / f"{name}.svg").read_text()


def test_the_settings_of_the_symbols() -> None:
    preset = flatten(feddst.configure("table1-feddst"))
    rows = re.findall(r"^\| \S+ \| .* \| `([\w.]+)` \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    numbers = {name: value for name, value in rows if name != "local.weigh_by"}
    assert len(numbers) == 5
    for name, value in numbers.items():
        assert f"{preset[name]:g}" == value
