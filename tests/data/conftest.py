"""Tables as pandas pickled them until its version 1.1, without pandas."""

import copyreg
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Columns = Mapping[str, npt.NDArray[Any]]
Pickled = Callable[[Mapping[int, Sequence[Columns]]], bytes]


class DataFrame:
    """Pickles as a table whose columns of each kind are one block."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def __reduce__(self) -> Any:
        return copyreg._reconstructor, (DataFrame, object, None), {"_data": BlockManager(self.columns)}  # type: ignore[attr-defined]


class BlockManager:
    def __init__(self, columns: Columns) -> None:
        names = [*columns]
        [rows] = {len(column) for column in columns.values()}
        kinds = [column.dtype.kind for column in columns.values()]
        blocks = [
            {
                "values": np.stack([columns[name] for name, of in zip(names, kinds, strict=True) if of == kind]),
                "mgr_locs": slice(kinds.index(kind), len(kinds) - kinds[::-1].index(kind), 1),
            }
            for kind in dict.fromkeys(kinds)
        ]
        axes = [Index({"data": np.array(names, object), "name": None}), RangeIndex(0, rows)]
        self.state: Any = (axes, [], [], {"0.14.1": {"axes": axes, "blocks": blocks}})

    def __reduce__(self) -> Any:
        return copyreg._reconstructor, (BlockManager, object, None), self.state  # type: ignore[attr-defined]


class Index:
    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __reduce__(self) -> Any:
        return _new_Index, (type(self), self.values)


class RangeIndex(Index):
    def __init__(self, start: int, stop: int) -> None:
        super().__init__({"name": None, "start": start, "stop": stop, "step": 1})


def _new_Index(kind: type, values: dict[str, Any]) -> Any:  # noqa: N802
    raise AssertionError("the tests never rebuild an index")


PLACES: tuple[tuple[Any, str], ...] = (
    (DataFrame, "pandas.core.frame"),
    (BlockManager, "pandas.core.internals.managers"),
    (Index, "pandas.core.indexes.base"),
    (_new_Index, "pandas.core.indexes.base"),
    (RangeIndex, "pandas.core.indexes.range"),
)


@pytest.fixture
def pickled_tables(monkeypatch: pytest.MonkeyPatch) -> Pickled:
    """Pickles lists of tables by number, under the names that pandas' own classes have."""
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))
    for thing, place in PLACES:
        if not isinstance(sys.modules.get(place), _Stand):
            monkeypatch.setitem(sys.modules, place, _Stand(place))
        monkeypatch.setattr(sys.modules[place], thing.__name__, thing, raising=False)
        monkeypatch.setattr(thing, "__module__", place)

    def dumped(tables: Mapping[int, Sequence[Columns]]) -> bytes:
        frames = {number: [DataFrame(columns) for columns in several] for number, several in tables.items()}
        return pickle.dumps(frames, protocol=2)

    return dumped


class _Stand(ModuleType):
    """Stands for one of pandas' modules."""
