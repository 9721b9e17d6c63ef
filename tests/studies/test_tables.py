from dataclasses import replace
from pathlib import Path

import pytest

from feddst.runtime import Row
from feddst.studies import CompareConfig, Comparison
from feddst.studies.comparison import Curve
from feddst.studies.tables import caption, cell, headline, markdown, notes, table


def row(number: int, gib: float, accuracy: float | None) -> Row:
    sent = round(gib * 2**30)
    return Row(
        number, accuracy, accuracy, accuracy, None, 1.0, 1.0, 0.2, 0, 0, 20, 0, sent, 0, sent // 2, 0, 0, 0, 0, 0, 1.0
    )


def curve(label: str, seed: int, points: list[tuple[float, float | None]], cap: float = 2.0) -> Curve[Row]:
    """A run that ended at its cap; `cap` 0 for one that ended for another reason."""
    return Curve(label, seed, tuple(row(i, *point) for i, point in enumerate(points, 1)), Path("x"), cap_gib=cap)


def comparison(*curves: Curve[Row], caps: tuple[float, ...]) -> Comparison:
    labels = tuple(dict.fromkeys(curve.label for curve in curves))
    seeds = tuple(dict.fromkeys(curve.seed for curve in curves))
    return Comparison(CompareConfig(methods=labels, seeds=seeds, caps=caps), curves, Path("x"), finished=True)


@pytest.fixture
def two_seeds() -> Comparison:
    # Dense rounds cost 1 GiB, sparse ones 0.5 GiB; both runs end at 2 GiB.
    return comparison(
        curve("fedavgm", 0, [(1.0, 0.50), (2.0, 0.80)]),
        curve("feddst", 0, [(0.5, 0.40), (1.0, 0.70), (1.5, None), (2.0, 0.90)]),
        curve("fedavgm", 1, [(1.0, 0.54), (2.0, 0.84)]),
        curve("feddst", 1, [(0.5, 0.60), (1.0, 0.50), (1.5, None), (2.0, 0.94)]),
        caps=(2.0, 1.0),
    )


def test_cells_are_mean_and_sample_deviation_of_the_best_under_each_cap(two_seeds: Comparison) -> None:
    # fedavgm at 1 GiB: 50 and 54, mean 52, deviation sqrt(2² + 2²) = 2.83; at 2 GiB: 80 and 84.
    # feddst at 1 GiB: the best of 40, 70 and of 60, 50: 70 and 60, mean 65, deviation sqrt(5² + 5²) = 7.07.
    assert table(two_seeds) == [
        ["method", "1 GiB", "2 GiB", "MiB up", "MiB down"],
        ["fedavgm", "52.0 ± 2.8", "82.0 ± 2.8", "2,048.0", "1,024.0"],
        ["feddst", "65.0 ± 7.1", "92.0 ± 2.8", "2,048.0", "1,024.0"],
    ]
    assert notes(two_seeds) == []
    assert caption(two_seeds) == (
        "Best mean client accuracy [%] under caps on the upload, measured, mean ± standard deviation over 2 seeds; "
        "bytes sent in whole runs, measured."
    )


def test_the_sentence_is_about_the_last_entry_at_the_largest_cap(two_seeds: Comparison) -> None:
    assert headline(two_seeds) == (
        "At 2 GiB of upload, measured, feddst reaches 92.0 % mean client accuracy, 10.0 points above fedavgm "
        "(means over 2 seeds)."
    )


def test_one_seed_has_no_deviation() -> None:
    one = comparison(
        curve("fedavgm", 3, [(1.0, 0.8931)]),
        curve("randommask", 3, [(1.0, 0.9360)]),
        curve("fedprox", 3, [(1.0, 0.9341)]),
        curve("feddst", 3, [(1.0, 0.9342)]),
        caps=(1.0,),
    )
    assert [line[1] for line in table(one)] == ["1 GiB", "89.3", "93.6", "93.4", "93.4"]
    # As the table rounds them: 93.4 − 89.3 = 4.1, 93.4 − 93.6 = −0.2, 93.4 − 93.4 = 0.
    assert headline(one) == (
        "At 1 GiB of upload, measured, feddst reaches 93.4 % mean client accuracy, 4.1 points above fedavgm, "
        "0.2 points below randommask and level with fedprox (one seed)."
    )


def test_a_difference_smaller_than_the_spread_is_called_so() -> None:
    close = comparison(
        curve("randommask", 0, [(1.0, 0.90)]),
        curve("randommask", 1, [(1.0, 0.94)]),
        curve("feddst", 0, [(1.0, 0.91)]),
        curve("feddst", 1, [(1.0, 0.95)]),
        caps=(1.0,),
    )
    # Means 92 and 93, deviations 2.83.
    assert "93.0 % mean client accuracy, 1.0 points above randommask, within the seeds' spread" in headline(close)


def test_a_run_that_could_have_gone_on_is_marked() -> None:
    short = comparison(
        curve("fedavgm", 0, [(1.0, 0.5), (2.0, 0.8)]),
        curve("feddst", 0, [(0.4, 0.6), (0.8, 0.7)], cap=1.0),
        caps=(1.0, 2.0),
    )
    # The second run ended at 1 GiB, and would have gone further under 2.
    assert [line[1:3] for line in table(short)[1:]] == [["50.0", "80.0"], ["70.0", "70.0*"]]
    assert notes(short) == ["* ended before the cap for another reason: more rounds would have been allowed"]
    assert "\\* ended before the cap" in markdown(short)


def test_a_run_that_ended_by_its_rounds_is_marked_unless_it_passed_the_cap() -> None:
    ended = comparison(curve("feddst", 0, [(0.4, 0.6), (1.2, 0.7)], cap=0.0), caps=(1.0, 2.0))
    assert table(ended)[1][:3] == ["feddst", "60.0", "70.0*"]


def test_a_cap_without_an_evaluation_is_empty() -> None:
    empty = comparison(curve("fedavgm", 0, [(1.0, 0.5)]), curve("feddst", 0, [(0.5, 0.6)]), caps=(0.5,))
    assert table(empty)[1] == ["fedavgm", "–", "1,024.0", "512.0"]
    assert headline(empty) == (
        "At 0.5 GiB of upload, measured, feddst reaches 60.0 % mean client accuracy, with fedavgm not evaluated "
        "(one seed)."
    )
    other_way = comparison(curve("feddst", 0, [(0.5, 0.6)]), curve("fedavgm", 0, [(1.0, 0.5)]), caps=(0.5,))
    assert headline(other_way) == "At 0.5 GiB of upload, measured, fedavgm has not been evaluated yet."


def test_missing_seeds_are_marked() -> None:
    partial = comparison(
        curve("fedavgm", 0, [(1.0, 0.5)]),
        curve("feddst", 0, [(1.0, 0.6)]),
        curve("fedavgm", 1, [(1.0, 0.7)]),
        caps=(1.0,),
    )
    assert cell(partial, "feddst", 1.0).partial
    assert table(partial)[2][:2] == ["feddst", "60.0†"]
    assert notes(partial) == ["† not all seeds have an evaluation under this cap"]


def test_without_caps_the_whole_runs_are_compared() -> None:
    whole = comparison(curve("fedavgm", 0, [(1.0, 0.5)]), curve("feddst", 0, [(0.5, 0.6), (0.6, 0.55)]), caps=())
    assert table(whole) == [
        ["method", "whole run", "MiB up", "MiB down"],
        ["fedavgm", "50.0", "1,024.0", "512.0"],
        ["feddst", "60.0", "614.4", "307.2"],
    ]
    assert headline(whole).startswith("Over the whole runs feddst reaches 60.0 %")


def test_a_single_entry_is_compared_with_nothing() -> None:
    alone = comparison(curve("feddst", 0, [(1.0, 0.6)]), caps=(1.0,))
    assert headline(alone) == "At 1 GiB of upload, measured, feddst reaches 60.0 % mean client accuracy (one seed)."


def test_markdown_is_an_aligned_table(two_seeds: Comparison) -> None:
    lines = markdown(two_seeds, picture="accuracy.png").splitlines()
    assert lines[2:6] == [
        "| method  |      1 GiB |      2 GiB |  MiB up | MiB down |",
        "|---------|-----------:|-----------:|--------:|---------:|",
        "| fedavgm | 52.0 ± 2.8 | 82.0 ± 2.8 | 2,048.0 |  1,024.0 |",
        "| feddst  | 65.0 ± 7.1 | 92.0 ± 2.8 | 2,048.0 |  1,024.0 |",
    ]
    assert lines[-1] == "![mean client accuracy against upload](accuracy.png)"


def test_clients_own_models_have_a_column_where_there_are_such() -> None:
    one = curve("lg-fedavg", 0, [(0.5, 0.1), (1.0, 0.2)])
    rows = tuple(replace(row, score_personal=score) for row, score in zip(one.rows, (0.8, 0.9), strict=True))
    both = comparison(curve("fedavgm", 0, [(1.0, 0.5)]), replace(one, rows=rows), caps=(1.0,))
    assert table(both) == [
        ["method", "1 GiB", "own models", "MiB up", "MiB down"],
        ["fedavgm", "50.0", "–", "1,024.0", "512.0"],
        ["lg-fedavg", "20.0", "90.0", "1,024.0", "512.0"],
    ]


def test_among_many_the_last_is_compared_with_the_best() -> None:
    labels = ["fedavg", "fedavgm", "fedprox", "fedadam", "fedyogi", "randommask", "snip", "feddst"]
    scores = [0.1, 0.2, 0.3, 0.4, 0.9, 0.5, 0.6, 0.8]
    many = comparison(
        *(curve(name, 0, [(1.0, score)]) for name, score in zip(labels, scores, strict=True)), caps=(1.0,)
    )
    assert headline(many).endswith("reaches 80.0 % mean client accuracy, 10.0 points below fedyogi (one seed).")
