"""Tables and arrays in files of one's own: CSV, Parquet and npz, with a column or an array of targets.

The features of a table are numbers, and are normalised by the mean and standard deviation of the training rows. A
target column of text or of whole numbers has classes, one of other numbers has numbers. The arrays of an npz file are
taken as they are.
"""

import csv
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from feddst.core.keys import generator
from feddst.data.config import DataConfig
from feddst.data.conversion import as_targets, as_tensor, with_channel
from feddst.data.dataset import Dataset, Indices, classes_in
from feddst.data.records import StoredRecords
from feddst.errors import DataError, OptionError

Column = npt.NDArray[Any]

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")
LARGEST = 4 << 30
"""Bytes that the arrays of an npz file may take."""
_MOST_DIGITS = 18
"""Whole numbers with more of them are read as other numbers: they might not fit 64 bits."""
_INPUTS, _TARGETS = ("inputs", "x", "X"), ("targets", "y", "Y")
"""What the arrays of an npz file may be called."""


@dataclass(frozen=True)
class Rows:
    """The columns of a file, each with as many values as there are rows."""

    path: Path
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def column(self, name: str, option: str) -> Column:
        """The column of a name that an option gave."""
        if name not in self.columns:
            raise DataError(f"{option}: {self.path.name} has no column {name!r}, it has {_some(self.columns)}")
        return self.columns[name]

    def at(self, index: Indices) -> "Rows":
        """Some of the rows."""
        return Rows(self.path, {name: column[index] for name, column in self.columns.items()})


def load_file(config: DataConfig) -> Dataset:
    """The data set of `data.root`, tested on the file `data.test`, or on the share `data.test_share` of its rows."""
    if not config.root:
        raise OptionError("data.root must name a CSV, TSV, Parquet or npz file when data.dataset is file")
    path = Path(config.root).expanduser()
    train = read_rows(path, "data.root")
    if config.test:
        test = read_rows(Path(config.test).expanduser(), "data.test")
        if test.path.suffix.lower() != path.suffix.lower():
            raise OptionError(f"data.test must be a {path.suffix} file as data.root is, got {test.path.name}")
    else:
        train, test = _divided(train, config.test_share)
    if path.suffix.lower() == ".npz":
        return _of_arrays(train, test, config)
    return _of_table(train, test, config)


def read_rows(path: Path, option: str) -> Rows:
    """The columns of a file by its suffix."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise OptionError(f"{option} must be a file that ends in {', '.join(SUFFIXES)}, got {path.name!r}")
    try:
        if suffix == ".npz":
            columns = _read_npz(path)
        elif suffix == ".parquet":
            columns = _read_parquet(path)
        else:
            columns = _read_csv(path, "\t" if suffix == ".tsv" else ",")
    except FileNotFoundError:
        raise DataError(f"{option}: {path} does not exist") from None
    except OSError as error:
        raise DataError(f"{option}: {path}: cannot be read ({error.strerror or _first_line(error)})") from None
    sizes = {name: len(column) if column.ndim else 0 for name, column in columns.items()}
    if len(set(sizes.values())) != 1:
        said = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise DataError(f"{option}: {path.name}: its arrays must have equally many examples each, got {said or 'none'}")
    if not max(sizes.values()):
        raise DataError(f"{option}: {path.name} has no rows")
    return Rows(path, columns)


def _read_csv(path: Path, delimiter: str) -> dict[str, Column]:
    """The columns of a file with a line of names; every value is text."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, delimiter=delimiter, strict=True)
            heading = next(lines, [])
            rows = []
            for row in lines:
                if len(row) == len(heading):
                    rows.append(row)
                elif row:  # an empty line is none
                    raise DataError(
                        f"{path.name}: line {lines.line_num} has {len(row)} values, but its first line names "
                        f"{len(heading)} columns"
                    )
    except UnicodeDecodeError:
        raise DataError(f"{path.name}: cannot be read as text in UTF-8") from None
    except csv.Error as error:
        raise DataError(f"{path.name}: line {lines.line_num} cannot be read ({error})") from None
    _check_names(path, heading)
    values = zip(*rows, strict=True) if rows else [()] * len(heading)
    return {name: np.array(column, dtype=object) for name, column in zip(heading, values, strict=True)}


def _check_names(path: Path, names: Sequence[str]) -> None:
    if not names:
        raise DataError(f"{path.name}: is empty; its first line must name the columns")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise DataError(f"{path.name}: names the column {doubled[0]!r} more than once")


def _read_parquet(path: Path) -> dict[str, Column]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError("reading Parquet files needs pyarrow: pip install feddst[hf]") from None
    with path.open("rb"):
        pass  # says that there is no such file in the usual words
    try:
        table = pyarrow.parquet.ParquetFile(path).read()
        _check_names(path, table.column_names)
        return {name: _objects(table.column(name).to_pylist()) for name in table.column_names}
    except (pyarrow.ArrowException, ValueError) as error:
        raise DataError(f"{path.name}: cannot be read as a Parquet file ({_first_line(error)})") from None


def _objects(values: Sequence[Any]) -> Column:
    """An array [n] of these values, whatever they are."""
    found = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        found[at] = value
    return found


def _read_npz(path: Path) -> dict[str, Column]:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST:
                raise DataError(f"{path.name}: its arrays take more than the {LARGEST} bytes allowed, once unpacked")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (
        ValueError,
        KeyError,
        EOFError,
        MemoryError,
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        NotImplementedError,
    ) as error:
        if "allow_pickle" in str(error):
            raise DataError(f"{path.name}: holds Python objects, which are not read; save arrays of numbers") from None
        raise DataError(f"{path.name}: cannot be read as an npz file ({_first_line(error)})") from None
    except Exception as error:  # zlib's and lzma's own errors on damaged bytes
        if isinstance(error, OSError | DataError):
            raise
        raise DataError(f"{path.name}: cannot be read as an npz file ({_first_line(error)})") from None


def _divided(rows: Rows, share: float) -> tuple[Rows, Rows]:
    """Rows to train on and rows to test on, drawn at random but always the same."""
    count = round(share * len(rows))
    if not 0 < count < len(rows):
        raise OptionError(
            f"data.test_share must leave rows to train and to test on: {share:g} of {len(rows)} rows is {count}"
        )
    order = generator(0, "test share").permutation(len(rows))
    return rows.at(np.sort(order[count:])), rows.at(np.sort(order[:count]))


def _of_table(train: Rows, test: Rows, config: DataConfig) -> Dataset:
    if not config.target:
        raise OptionError(f"data.target must name the column of {train.path.name} to predict: {_some(train.columns)}")
    aside = {config.target, config.owner} - {""}
    for part in (train, test):
        part.column(config.target, "data.target")
    names = [name for name in config.inputs or train.columns if config.inputs or name not in aside]
    for name in names:
        train.column(name, "data.inputs")
        if name in aside:
            raise OptionError(f"data.inputs must not have {name!r}, which is the target or the owner")
    if not names:
        raise DataError(
            f"{train.path.name} has no columns but {', '.join(sorted(aside))}: there is nothing to predict from"
        )
    inputs = [torch.from_numpy(np.stack([_numbers(part, name) for name in names], axis=1)) for part in (train, test)]
    mean, std = _statistics(inputs[0])
    targets, classes = _targets(train, test, config.target)
    parts = [
        StoredRecords(values, as_targets(wanted), mean, std) for values, wanted in zip(inputs, targets, strict=True)
    ]
    return Dataset(_name(train), parts[0], parts[1], classes or tuple(classes_in(*parts)), _owners(train, test, config))


def _of_arrays(train: Rows, test: Rows, config: DataConfig) -> Dataset:
    target = config.target or _first(train, _TARGETS, "data.target")
    rest = [name for name in train.columns if name not in (target, config.owner)]
    names = list(config.inputs) or ([_first(train, _INPUTS, "")] if {*_INPUTS} & {*rest} else rest)
    if len(names) != 1:
        raise DataError(
            f"{train.path.name} must have one array of inputs beside the targets, called inputs or x or named by "
            f"data.inputs, got {', '.join(names) or 'none'}"
        )
    parts = []
    for part in (train, test):
        columns = part.column(names[0], "data.inputs"), part.column(target, "data.target")
        inputs, targets = (
            as_tensor(f"{part.path.name}: {name}", one) for name, one in zip((names[0], target), columns, strict=True)
        )
        parts.append(StoredRecords(with_channel(inputs), as_targets(targets)))
    return Dataset(_name(train), parts[0], parts[1], tuple(classes_in(*parts)), _owners(train, test, config))


def _first(rows: Rows, names: Sequence[str], option: str) -> str:
    found = [name for name in names if name in rows.columns]
    if not found:
        raise OptionError(
            f"{option} must name the array of {rows.path.name} to predict: it has no {names[0]} or {names[1]}, but "
            f"{_some(rows.columns)}"
        )
    return found[0]


def _numbers(rows: Rows, name: str) -> npt.NDArray[np.float64]:
    """A feature's values; raises `DataError` at the first that is no number."""
    column = rows.column(name, rows.path.name)
    found = np.empty(len(column), np.float64)
    for at, value in enumerate(column):
        number = _number(value)
        if number is None:
            raise DataError(
                f"{rows.path.name}: column {name!r} must be numbers, got {_shown(value)} in row {at + 1}; fill in what "
                "is missing and turn text into numbers (a 0/1 column for each value), or choose others with data.inputs"
            )
        found[at] = number
    return found


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if np.isfinite(number) else None


def _targets(train: Rows, test: Rows, name: str) -> tuple[list[Tensor], tuple[str, ...]]:
    """The targets of both parts, and the names of classes if they are text."""
    columns = [part.columns[name] for part in (train, test)]
    for part, column in zip((train, test), columns, strict=True):
        for at, value in enumerate(column):
            if value is None or value == "" or (isinstance(value, float) and not np.isfinite(value)):
                raise DataError(f"{part.path.name}: the target {name!r} is missing in row {at + 1}")
            if isinstance(value, list | dict):
                raise DataError(
                    f"{part.path.name}: the target {name!r} must be one number or text for each row, got "
                    f"{_shown(value)} in row {at + 1}"
                )
    numbers = [[_number(value) for value in column] for column in columns]
    if all(number is not None for part in numbers for number in part):
        whole = all(_is_whole(value) for column in columns for value in column)
        kind = np.int64 if whole else np.float64
        return [torch.from_numpy(np.array([_exact(value, whole) for value in column], kind)) for column in columns], ()
    strange = next((at for at, value in enumerate(columns[0]) if _number(value) is None), None)
    if any(number is not None for part in numbers for number in part):
        part, at = (
            (train, strange) if strange is not None else (test, next(a for a, n in enumerate(numbers[1]) if n is None))
        )
        raise DataError(
            f"{part.path.name}: the target {name!r} must be numbers or text throughout, got "
            f"{_shown(part.columns[name][at])} in row {at + 1} among numbers"
        )
    classes = tuple(sorted({str(value) for value in columns[0]}))
    place = {label: at for at, label in enumerate(classes)}
    for at, value in enumerate(columns[1]):
        if str(value) not in place:
            raise DataError(
                f"{test.path.name}: the target {name!r} is {_shown(value)} in row {at + 1} to be tested on, a class "
                "that no training row has"
            )
    return [torch.tensor([place[str(value)] for value in column]) for column in columns], classes


def _is_whole(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MOST_DIGITS and value.strip().lstrip("+-").isdecimal()
    return isinstance(value, bool | int | np.integer) and abs(int(value)) < 10**_MOST_DIGITS


def _exact(value: Any, whole: bool) -> int | float:
    return int(value) if whole else float(value)


def _owners(train: Rows, test: Rows, config: DataConfig) -> tuple[Indices, Indices] | None:
    """To whom each row belongs, if a column says so, numbered in the order of their names."""
    if not config.owner:
        return None
    several = [part.column(config.owner, "data.owner") for part in (train, test)]
    for part, column in zip((train, test), several, strict=True):
        if column.ndim != 1:
            raise DataError(
                f"data.owner: {config.owner!r} must be one name or number for each row, got an "
                f"array {list(column.shape)}"
            )
        missing = next((at for at, value in enumerate(column) if value is None or value == ""), None)
        if missing is not None:
            raise DataError(f"{part.path.name}: the owner {config.owner!r} is missing in row {missing + 1}")
    names = sorted({_key(value) for column in several for value in column.tolist()})
    place = {name: at for at, name in enumerate(names)}
    train_owners, test_owners = (np.array([place[_key(value)] for value in column.tolist()]) for column in several)
    return train_owners, test_owners


def _key(value: Any) -> tuple[float, str]:
    """Numbers in their own order, then text."""
    number = _number(value)
    return (np.inf if number is None else number, str(value))


def _statistics(inputs: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and standard deviation of each column; one whose values are all the same is only centred."""
    mean, std = inputs.mean(0), inputs.std(0, correction=0)
    std = torch.where(std > 1e-12 * (1 + mean.abs()), std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


def _name(rows: Rows) -> str:
    return rows.path.stem


def _some(columns: Mapping[str, Column]) -> str:
    names = list(columns)
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _shown(value: Any) -> str:
    return "nothing" if value is None or value == "" else repr(value[:30] if isinstance(value, str | list) else value)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
