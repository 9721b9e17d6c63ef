"""Pictures, and tables in `results/`, are what a program writes today from the committed records."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from benchmarks.flower import slow_network
from feddst.methods import METHODS
from feddst.runtime.old_names import METHODS as CROSSED
from feddst.studies.plots import score_against_upload
from feddst.studies.reproduce import load_record
from feddst.studies.reproduce.carry_out import write_reports
from scripts.tables.comparisons import comparison
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


def test_every_method_is_compared() -> None:
    labels = comparison("methods").config.methods
    assert {*METHODS, *CROSSED} == {label.partition(":")[0] for label in labels}


@pytest.mark.parametrize("name", ["quick", "methods"])
def test_pictures_of_comparisons(name: str, tmp_path: Path) -> None:
    score_against_upload(comparison(name), tmp_path / "made.png")
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
