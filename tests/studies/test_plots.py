from pathlib import Path

import numpy as np
import pytest

from feddst.runtime import Row
from feddst.runtime.presets import TABLES, table_rows
from feddst.runtime.shown import COLOURS
from feddst.studies import CompareConfig, Comparison
from feddst.studies.comparison import Curve
from feddst.studies.plots import (
    Picture,
    _set_up,
    _spread_out,
    band,
    looks_of,
    new_figure,
    score_against_upload,
)


def row(number: int, mib: float, accuracy: float | None) -> Row:
    sent = round(mib * 2**20)
    return Row(
        number, accuracy, accuracy, accuracy, None, 1.0, 1.0, 0.2, 0, 0, 20, 0, sent, 0, sent // 2, 0, 0, 0, 0, 0, 1.0
    )


def curve(label: str, seed: int, scores: list[float | None], mib: float = 4.0) -> Curve[Row]:
    return Curve(label, seed, tuple(row(i, i * mib, score) for i, score in enumerate(scores, 1)), Path("x"))


def test_a_band_is_the_mean_with_the_lowest_and_the_highest_over_seeds() -> None:
    line = band([curve("feddst", 0, [0.2, None, 0.5]), curve("feddst", 1, [0.4, None, 0.6], mib=4.0625)])
    # Rounds 1 and 3 are evaluated, at (4 + 4.0625)/2 = 4.03125 MiB and three times that.
    np.testing.assert_allclose(line.upload, [4.03125, 12.09375])
    np.testing.assert_allclose(line.mean, [30, 55])
    np.testing.assert_allclose(line.low, [20, 50])
    np.testing.assert_allclose(line.high, [40, 60])


def test_a_round_counts_with_the_seeds_that_have_it() -> None:
    line = band([curve("feddst", 0, [0.2, 0.5]), curve("feddst", 1, [0.4])])
    np.testing.assert_allclose(line.mean, [30, 50])


def test_seeds_that_upload_different_amounts_are_compared_by_upload_as_far_as_all_go() -> None:
    line = band([curve("prunefl", 0, [0.2, 0.4, 0.6]), curve("prunefl", 1, [0.3, 0.5], mib=8.0)])
    # From 8 MiB, where the second begins, to 12, where the first ends: 40 → 60 % and 30 → 40 %.
    np.testing.assert_allclose((line.upload[0], line.upload[-1]), (8, 12))
    np.testing.assert_allclose((line.mean[0], line.mean[-1]), (35, 50))
    np.testing.assert_allclose((line.low[-1], line.high[-1]), (40, 60))
    np.testing.assert_allclose(np.interp(10, line.upload, line.mean), (50 + 35) / 2)


def test_names_are_neither_over_each_other_nor_below_the_picture() -> None:
    heights = _spread_out([0.98, 0.97, 0.4, -0.6, -0.7], ["a", "b:c", "d", "e", "f"])
    np.testing.assert_allclose(heights, [0.975, 0.9, 0.4, 0.075, 0.025])


def test_a_picture_is_as_tall_as_its_names_need() -> None:
    names = [f"row {i}" for i in range(40)]  # of 0.05 each: twice what there usually is
    assert new_figure(names).get_figheight() == 2 * new_figure(names[:20]).get_figheight()
    assert new_figure(names[:20]).get_figheight() == new_figure().get_figheight()
    np.testing.assert_allclose(_spread_out([1.0] * 40, names), np.linspace(1 - 1 / 80, 1 / 80, 40))


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_picture_is_drawn_and_drawn_again(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    entries = ("fedavgm", "feddst:sparsity.level=0.9", "feddst")
    curves = tuple(curve(entry, seed, [0.2, 0.4 + seed / 10]) for entry in entries[:2] for seed in seeds)
    config = CompareConfig(methods=entries, seeds=seeds, caps=(0.005, 0.01))
    comparison = Comparison(config, curves, tmp_path, finished=False)  # one entry has no curve yet
    for _ in range(2):
        score_against_upload(comparison, tmp_path / "accuracy.png")
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["accuracy.png"]


def test_lines_of_one_colour_differ_in_style_and_say_so() -> None:
    names = [f"row {i}" for i in range(2 * len(COLOURS) + 1)]
    looks = list(looks_of(names))
    assert len({(style, colour) for _, style, colour in looks}) == len(names)
    assert [name for name, _, _ in looks[: len(COLOURS)]] == names[: len(COLOURS)]
    assert looks[len(COLOURS)] == ("row 9 (dashed)", "--", COLOURS[0])
    assert looks[-1] == ("row 18 (dotted)", ":", COLOURS[0])


def test_no_table_of_the_paper_has_two_rows_of_one_colour() -> None:
    most = max(len(table_rows(table, published)) for table in TABLES for published in (False, True))
    assert len(set(COLOURS)) == len(COLOURS) >= most


@pytest.mark.parametrize(("caps", "scale"), [((0.001, 0.01), "linear"), ((0.0002, 0.01), "log")])
def test_caps_far_apart_have_a_logarithmic_axis(caps: tuple[float, ...], scale: str) -> None:
    axes = new_figure().add_subplot()
    axes.plot([0.1, 10], [20, 30])
    _set_up(axes, Picture("two caps", [], "measured", caps, shaded=False))
    assert axes.get_xscale() == scale
    left, right = axes.get_xlim()
    assert left <= 1024 * caps[0]
    assert right >= 1024 * caps[-1]
