"""Tables and pictures that a program writes are what it writes today from the committed records."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from benchmarks.flower import slow_network
from feddst.methods import METHODS
from feddst.runtime.config import stored_options
from feddst.runtime.metrics import Row
from feddst.runtime.old_names import METHODS as CROSSED
from feddst.studies.comparison import CompareConfig, Comparison, Curve
from feddst.studies.plots import accuracy_against_upload
from feddst.studies.reproduce import load_record
from feddst.studies.reproduce.carry_out import write_reports
from feddst.studies.tables import caption, escaped, notes, pipes, table
from scripts.tables.records import bench

ROOT = Path(__file__).parents[2]
MOST = 0.0005
"""The share of a picture's pixels that may differ: another version of matplotlib may draw a letter differently."""


@pytest.fixture(autouse=True)
def usual_style() -> Iterator[None]:
    """Matplotlib as it is in a new process, whatever was drawn before in this one."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


REPRODUCTIONS = sorted(path.parent.name for path in ROOT.glob("results/*/record.json"))


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_tables_and_pictures_of_reproductions(name: str, tmp_path: Path) -> None:
    here = ROOT / "results" / name
    write_reports(load_record(here), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in here.iterdir()}
    for path in tmp_path.iterdir():
        if path.suffix == ".png":
            alike(path, here / path.name)
        else:
            assert path.read_text() == (here / path.name).read_text()


def alike(one: Path, other: Path) -> None:
    """Two pictures look the same."""
    pixels, others = imread(one), imread(other)
    assert pixels.shape == others.shape
    assert np.any(np.abs(pixels - others) > 0.1, axis=-1).mean() <= MOST, other


def comparison(name: str) -> Comparison:
    """What `comparison.json` holds."""
    content = bench(name)
    base = stored_options(content["config"]["base"])
    methods, seeds, caps = (tuple(content["config"][key]) for key in ("methods", "seeds", "caps"))
    config = CompareConfig(methods, seeds, caps, base)
    curves = []
    for curve in content["curves"]:
        ended_by_cap = not base.rounds or curve["round"][-1] < base.rounds
        rows = tuple(row_of(curve, i) for i in range(len(curve["round"])))
        curves.append(Curve(curve["label"], curve["seed"], rows, Path(), base.accounting, base.cap_gib * ended_by_cap))
    return Comparison(config, tuple(curves), Path(), content["finished"], content["data"])


def row_of(curve: Mapping[str, Any], index: int) -> Row:
    """A row of the columns that are there; what is not stays empty, and no table or picture asks for it."""
    known = {f.name: curve[f.name][index] for f in fields(Row) if f.name in curve}
    rest: dict[str, Any] = {f.name: 0 for f in fields(Row) if f.name not in known}
    return Row(**known, **rest | {"accuracy_personal": None})


def test_the_table_of_all_methods() -> None:
    made = comparison("methods")
    shown = "\n\n".join([caption(made), pipes(table(made)), *escaped(notes(made))])
    assert shown in (ROOT / "docs/methods.md").read_text()
    assert {*METHODS, *CROSSED} == {label.partition(":")[0] for label in made.config.methods}


@pytest.mark.parametrize("name", ["quick", "methods"])
def test_pictures_of_comparisons(name: str, tmp_path: Path) -> None:
    accuracy_against_upload(comparison(name), tmp_path / "made.png")
    alike(tmp_path / "made.png", ROOT / f"docs/{name}.png")


def test_the_picture_of_slow_links(tmp_path: Path) -> None:
    slow_network.draw(bench("slow-network"), tmp_path / "made.png")
    alike(tmp_path / "made.png", ROOT / "docs/slow-network.png")


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_the_picture_of_thrift(data: str, tmp_path: Path, script_named: Callable[[str], ModuleType]) -> None:
    script_named("draw_thrift").draw(data, tmp_path / "made.png")
    alike(tmp_path / "made.png", ROOT / f"docs/thrift-{data}.png")


def test_the_picture_of_growth(tmp_path: Path, script_named: Callable[[str], ModuleType]) -> None:
    script_named("draw_growth").draw(tmp_path / "made.png")
    alike(tmp_path / "made.png", ROOT / "docs/growth.png")


def test_the_picture_of_the_life_of_masks(tmp_path: Path, script_named: Callable[[str], ModuleType]) -> None:
    script_named("mask_life").draw(bench("mask-life"), tmp_path / "made.png")
    alike(tmp_path / "made.png", ROOT / "docs/mask-life.png")
