from pathlib import Path

import numpy as np
import pytest

from feddst.experiment import CompareConfig, Comparison, Row
from feddst.experiment.comparison import Curve
from feddst.experiment.plots import accuracy_against_upload, band


def row(number: int, mib: float, accuracy: float | None) -> Row:
    sent = round(mib * 2**20)
    return Row(
        number, accuracy, accuracy, accuracy, None, 1.0, 1.0, 0.2, 0, 0, 20, 0, sent, 0, sent // 2, 0, 0, 0, 0, 0, 1.0
    )


def curve(label: str, seed: int, scores: list[float | None], mib: float = 4.0) -> Curve[Row]:
    return Curve(label, seed, tuple(row(i, i * mib, score) for i, score in enumerate(scores, 1)), Path("x"))


def test_a_band_is_the_mean_with_the_lowest_and_the_highest_over_seeds() -> None:
    line = band([curve("feddst", 0, [0.2, None, 0.5]), curve("feddst", 1, [0.4, None, 0.6], mib=6.0)])
    # Rounds 1 and 3 are evaluated, at (4 + 6)/2 = 5 and (12 + 18)/2 = 15 MiB.
    np.testing.assert_allclose(line.upload, [5, 15])
    np.testing.assert_allclose(line.mean, [30, 55])
    np.testing.assert_allclose(line.low, [20, 50])
    np.testing.assert_allclose(line.high, [40, 60])


def test_a_round_counts_with_the_seeds_that_have_it() -> None:
    line = band([curve("feddst", 0, [0.2, 0.5]), curve("feddst", 1, [0.4])])
    np.testing.assert_allclose(line.mean, [30, 50])


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_picture_is_drawn_and_drawn_again(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    entries = ("fedavgm", "feddst:sparsity.level=0.9", "feddst")
    curves = tuple(curve(entry, seed, [0.2, 0.4 + seed / 10]) for entry in entries[:2] for seed in seeds)
    config = CompareConfig(methods=entries, seeds=seeds, caps=(0.005, 0.01))
    comparison = Comparison(config, curves, tmp_path, finished=False)  # one entry has no curve yet
    for _ in range(2):
        accuracy_against_upload(comparison, tmp_path / "accuracy.png")
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["accuracy.png"]
