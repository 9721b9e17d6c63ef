"""Tables are read from pickles without pandas, and no pickle runs anything."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feddst.data.tables import load_tables
from feddst.errors import DataError


def test_columns_come_out_by_name(pickled_tables: Callable[[Any], bytes]) -> None:
    first = {"x": np.array([0.5, 1.5]), "y": np.array([-1.0, 2.0]), "label": np.array([3, -1])}
    second = {"x": np.array([9.0]), "y": np.array([8.0]), "label": np.array([7])}
    loaded = load_tables(pickled_tables({1: [first, second], 30: [second]}), "x")
    assert {number: len(tables) for number, tables in loaded.items()} == {1: 2, 30: 1}
    assert {name: column.tolist() for name, column in loaded[1][0].items()} == {
        "x": [0.5, 1.5],
        "y": [-1, 2],
        "label": [3, -1],
    }
    assert loaded[30][0]["label"].tolist() == [7]


class Calls:
    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)

    def __init__(self, path: str) -> None:
        self.path = path


def test_a_malicious_pickle_does_not_run(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    with pytest.raises(DataError, match=r"evil: damaged .* \(the name posix\.mkdir is not allowed"):
        load_tables(pickle.dumps({1: Calls(str(witness))}), "evil")
    assert not witness.exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": np.array([1.0], np.float32)}, "a column is not of float64 or int64"),
        ({"x": np.array(["a"], object)}, "a column is not of float64 or int64"),
    ],
)
def test_other_columns_are_refused(pickled_tables: Callable[[Any], bytes], columns: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_tables(pickled_tables({1: [columns]}), "x")


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps([1]), pickle.dumps({1: [2]}), pickle.dumps({})])
def test_damage_is_one_error(content: bytes) -> None:
    with pytest.raises(DataError, match="x: damaged or not a pickle of tables") as refused:
        load_tables(content, "x")
    assert "\n" not in str(refused.value)


def test_every_cut_file_is_refused(pickled_tables: Callable[[Any], bytes]) -> None:
    content = pickled_tables({1: [{"x": np.array([0.5]), "label": np.array([1])}]})
    for end in range(0, len(content), 7):
        with pytest.raises(DataError):
            load_tables(content[:end], "x")
