"""Pickles of pandas' tables, read without pandas and without letting them call anything.

Read is what `DataFrame` pickled as until pandas 1.1: a manager of blocks, each an array with a row for each of its
columns.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from feddst.data.pickles import ARRAYS, Array, Names, Recorded, unpickled
from feddst.errors import DataError

Table = dict[str, npt.NDArray[np.float64]]
"""A table's columns, [rows] each, by name."""

_KINDS = {"f8": np.dtype("<f8"), "i8": np.dtype("<i8")}


class _Made(Recorded):
    """Stands for `copyreg._reconstructor`, with which objects are made, and for what it is given."""


class _Index(Recorded):
    """Stands for `_new_Index`: the kind of index, and its values by name."""


class _Slice(Recorded):
    """Stands for a slice."""


_TABLES: Names = {
    **ARRAYS,
    ("copy_reg", "_reconstructor"): _Made,
    ("copyreg", "_reconstructor"): _Made,
    ("__builtin__", "object"): _Made,
    ("builtins", "object"): _Made,
    ("__builtin__", "slice"): _Slice,
    ("builtins", "slice"): _Slice,
    ("pandas.core.frame", "DataFrame"): _Made,
    ("pandas.core.internals.managers", "BlockManager"): _Made,
    ("pandas.core.indexes.base", "_new_Index"): _Index,
    ("pandas.core.indexes.base", "Index"): _Index,
    ("pandas.core.indexes.range", "RangeIndex"): _Index,
}


def load_tables(content: bytes, name: str) -> dict[int, list[Table]]:
    """The lists of tables that a pickled dictionary holds, by number; `name` is for messages."""
    try:
        loaded = unpickled(content, _TABLES, encoding="ASCII")
        if not isinstance(loaded, dict) or not loaded:
            raise ValueError("it holds no dictionary of tables")
        return {int(number): [_table(frame) for frame in frames] for number, frames in loaded.items()}
    except Exception as error:  # damaged bytes can make the unpickler raise nearly anything
        raise DataError(f"{name}: damaged or not a pickle of tables ({error})") from None


def _table(frame: Any) -> Table:
    (columns, rows), blocks = _parts(frame)
    found: Table = {}
    for block in blocks:
        values = _numbers(block["values"])
        if values.ndim != 2 or values.shape[1] != rows:
            raise ValueError(f"columns of {values.shape} values in a table of {rows} rows")
        for name, column in zip(columns[_places(block["mgr_locs"])], values, strict=True):
            found[name] = column.astype(np.float64)
    if set(found) != set(columns):
        raise ValueError("columns without values")
    return found


def _parts(frame: Any) -> tuple[tuple[list[str], int], list[dict[str, Any]]]:
    """The names of a table's columns and its number of rows; and its blocks."""
    manager = frame.state["_data"].state[3]["0.14.1"]
    columns, rows = (axis.arguments[1] for axis in manager["axes"])
    names = columns["data"].state[4]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("columns without names")
    return (names, len(range(rows["start"], rows["stop"], rows["step"]))), manager["blocks"]


def _places(where: Any) -> slice:
    if not isinstance(where, _Slice):
        raise ValueError("columns out of order")
    return slice(*where.arguments)


def _numbers(values: Any) -> npt.NDArray[Any]:
    if not isinstance(values, Array) or values.kind not in _KINDS:
        raise ValueError("a column is not of float64 or int64")
    return values.read(_KINDS[values.kind])
