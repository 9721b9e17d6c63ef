"""Figures for a paper."""

import struct
from pathlib import Path

import numpy as np
import pytest

from feddst.errors import CheckpointError, OptionError
from feddst.report import figures as module
from feddst.report import write_figures
from feddst.report.content import collect
from feddst.studies.plots import Band

from .conftest import MakeRun, detail

STARTS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
NAMES = ["accuracy-upload", "accuracy-upload-by-formula", "accuracy-rounds", "bytes", "masks-feddst"]


@pytest.mark.parametrize("format", ["png", "svg", "pdf"])
def test_figures_are_drawn_and_replaced_the_same(comparison: Path, format: module.FigureFormat) -> None:
    written = write_figures([comparison], format=format)
    assert written == [comparison / "report-figures" / f"{name}.{format}" for name in NAMES]
    before = [path.read_bytes() for path in written]
    assert all(content.startswith(STARTS[format]) for content in before)
    assert [path.read_bytes() for path in write_figures([comparison], format=format)] == before


def test_a_figure_is_a_column_wide_and_carries_truetype_fonts(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("run", [None, None], finished=False)
    pdf = write_figures([run], tmp_path / "pdf", "pdf")[0].read_bytes()
    assert b"/Subtype /Type42" in pdf or b"/FontFile2" in pdf
    assert b"/Subtype /Type3" not in pdf
    png = write_figures([run], tmp_path / "png", "png")[0].read_bytes()
    assert struct.unpack(">I", png[16:20])[0] == 990  # 3.3 inches at 300 dots each


def test_somebody_else_s_picture_stops_it_before_anything_is_written(comparison: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/bytes.png").write_bytes(b"a photograph")
    with pytest.raises(CheckpointError, match=r"bytes\.png exists already and is not a figure of feddst"):
        write_figures([comparison], tmp_path / "mine", "png")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["bytes.png"]


def test_a_file_in_place_of_the_directory_is_refused(comparison: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is not a directory"):
        write_figures([comparison], tmp_path / "file", "png")


def test_nothing_played_is_nothing_to_draw(make_run: MakeRun) -> None:
    with pytest.raises(OptionError, match="no round has been played yet"):
        write_figures([make_run("run", [], finished=False)])


def test_without_an_evaluation_only_bytes_are_drawn(make_run: MakeRun) -> None:
    written = write_figures(make_run("run", [None, None], finished=False), format="svg")
    assert [path.name for path in written] == ["bytes.svg"]


def test_labels_that_make_the_same_file_name_get_files_of_their_own(make_run: MakeRun) -> None:
    details = [detail(1, entered=2)]
    runs = [make_run(f"{name}/run", [0.5], details) for name in ("a b", "a~b", "A-B")]
    _, entries = collect(runs)
    assert [name for name in module.figures(entries) if name.startswith("masks")] == [
        "masks-feddst-in-a-b",
        "masks-feddst-in-a-b-2",
        "masks-feddst-in-A-B-3",
    ]


def test_without_matplotlib_the_extra_is_named(comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'feddst\[report\]'"):
        write_figures([comparison])


def band(*scores: float) -> Band:
    values = np.array(scores)
    return Band(np.arange(float(len(values))), values, values, values)


def test_an_axis_begins_below_the_lines_that_end_near_the_best() -> None:
    # They end at 90 and 95 %: twice the 5 points between them below the lower one; the third is too far off to count.
    assert module.worst_shown([band(*[85.0] * 8, 90.0), band(*[90.0] * 8, 95.0), band(50.0, 60.0)]) == 80.0
    assert module.worst_shown([band(10.0, 40.0, 90.0)]) is None  # 88 % would hide most of it
