import pytest

from feddst.cli.sparkline import BLOCKS, sparkline


def test_the_lowest_value_is_the_lowest_block_and_the_highest_the_highest() -> None:
    assert sparkline([0.0, 1.0], 10) == "▁█"
    assert sparkline([0.2, 0.9, 0.55], 10) == "▁█▅"  # 0.55 is half way: 3.5 of 7 steps, rounded to the even 4
    assert sparkline([float(i) for i in range(8)], 8) == BLOCKS


def test_more_values_than_columns_become_means_of_neighbours() -> None:
    # Pairs: 0.5, 2.5, 4.5, 6.5, which are 0, 1/3, 2/3 and 1 of the way: 0, 2.33, 4.67 and 7 steps.
    assert sparkline([float(i) for i in range(8)], 4) == "▁▃▆█"
    assert len(sparkline([float(i % 7) for i in range(1000)], 33)) == 33


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.5, 0.5]])
def test_a_curve_without_a_slope_is_flat(values: list[float]) -> None:
    assert sparkline(values, 10) == "▁" * len(values)


def test_nothing_is_drawn_of_nothing_or_where_there_is_no_room() -> None:
    assert sparkline([], 10) == ""
    assert sparkline([0.1, 0.2], 0) == ""
