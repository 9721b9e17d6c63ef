"""The table and the picture of a federation."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feddst.data import Federation
from feddst.data.show import count_table, save_picture
from feddst.errors import DataError


def federation(counts: list[list[int]]) -> Federation:
    """Clients that hold these numbers of images of each class, each tested on one image of each class it holds."""
    classes = len(counts[0])
    train = [(np.zeros((sum(row), 1), np.float32), np.repeat(np.arange(classes), row)) for row in counts]
    test = (np.zeros((classes, 1), np.float32), np.arange(classes))
    return Federation.from_clients(train, test, classes=tuple("abcdefgh"[:classes]))


def test_the_table_names_the_largest_classes_first() -> None:
    rows = count_table(federation([[2, 0, 5], [1, 1, 1], [0, 4, 0], [3, 2, 2]]), max_rows=2)
    assert rows == [
        ("client", "examples", "test examples", "classes"),
        ("0", "7", "2", "c ×5, a ×2"),
        ("1", "3", "3", "a ×1, b ×1, c ×1"),
        ("2 more", "11", "", "5.5 examples each"),
    ]


def test_a_table_that_fits_has_no_last_row() -> None:
    assert len(count_table(federation([[2], [3]]), max_rows=2)) == 3


def test_many_classes_are_summed_up() -> None:
    rows = count_table(federation([[1, 2, 3, 4, 5, 6, 7, 8]]), max_rows=9)
    assert rows[1][3] == "h ×8, g ×7, f ×6, e ×5, d ×4, c ×3, 2 more"


def without_classes(sizes: list[int]) -> Federation:
    train = [(np.zeros((size, 1), np.float32), np.linspace(0, 1, size)) for size in sizes]
    return Federation.from_clients(train, (np.zeros((5, 1), np.float32), np.linspace(0, 1, 5)))


def test_without_classes_there_are_sizes_alone() -> None:
    assert count_table(without_classes([1, 1000, 7, 4]), max_rows=2) == [
        ("client", "examples", "test examples"),
        ("0", "1", "5"),
        ("1", "1000", "5"),
        ("2 more", "11, 5.5 each", ""),
    ]


def test_the_picture_of_sizes_alone_is_a_png(tmp_path: Path) -> None:
    save_picture(without_classes([1, 1000, 7]), tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as image:
        assert image.width > 1000
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 100


@pytest.mark.parametrize("counts", [[[2, 2], [0, 4]], [[1, 1], [90, 2]], [[1]]])
def test_the_picture_is_a_png(tmp_path: Path, counts: list[list[int]]) -> None:
    path = tmp_path / "x.png"
    save_picture(federation(counts), path)
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.width > 1000
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 100


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_text("mine")
    with pytest.raises(DataError, match=r"x\.png exists already"):
        save_picture(federation([[1]]), path)
    assert path.read_text() == "mine"


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere/x\.png: cannot be written \(No such file or directory\)"):
        save_picture(federation([[1]]), tmp_path / "nowhere" / "x.png")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DataError, match=r"pip install feddst\[report\]"):
        save_picture(federation([[1]]), tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
