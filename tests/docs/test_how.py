"""The pictures and worked examples of docs/how.md have the numbers that the package computes.

That its blocks run and print what it says is tested with the other pages.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import Tensor

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


def test_the_mask_on_real_digits(values: dict[str, Any]) -> None:
    rows = json.loads((ROOT / "results/wire-coders.json").read_text())["rows"]
    [row] = [row for row in rows if (row["what"], row["coder"]) == ("MNIST digits α=0.05", "ours")]
    assert f"took {row['bytes']:,} bytes at α = 0.05" in PAGE
    weights = sum(parameter.numel() for parameter in values["module"].parameters())
    assert f"biases, {weights / 8:,.0f} bytes" in re.sub(r"\s+", " ", PAGE)


def test_the_text_has_the_numbers_of_the_examples(values: dict[str, Any]) -> None:
    words = re.sub(r"\s+", " ", PAGE)
    before, after, gradient = values["before"], values["after"], values["gradient"]
    assert f"smallest magnitude are {told(values['weights'][before & ~after])}." in words
    assert f"gradients in magnitude are {told(gradient[after & ~before])}." in words
    assert f"The gradient {told(gradient[before & after].max()[None])} is larger" in words
    mean, new = values["averaged"](values["held"])
    plain = sum(n * row[0] for n, row in zip(values["images"], values["held"].nan_to_num(), strict=True)) / 100
    assert f"(40 + 40) = {mean[0]:.1f}." in words
    assert f"/ 100 = {plain:.2f}." in words
    sent, kept = values["sent"], new.masks["layer"]
    joined, gone = told((kept & ~sent).nonzero()[0]), told((sent & ~kept).nonzero()[0])
    assert f"Weight {joined} has joined the mask, weight {gone} has left it." in words
    biases = sum(layer.biases for layer in values["layers"])
    assert f"{sum(values['budgets'].values()):,} weights and {biases} biases" in words


def told(values: Tensor) -> str:
    """Numbers as the text has them."""
    return " and ".join(f"{value:.3g}" for value in values.tolist()).replace("-", "−")


def test_the_settings_of_the_symbols() -> None:
    preset = flatten(feddst.configure("table1-feddst"))
    rows = re.findall(r"^\| \S+ \| .* \| `([\w.]+)` \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    numbers = {name: value for name, value in rows if name != "local.weigh_by"}
    assert len(numbers) == 5
    for name, value in numbers.items():
        assert f"{preset[name]:g}" == value
