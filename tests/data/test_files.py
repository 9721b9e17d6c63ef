"""Tables and arrays from files: what is read, what it becomes, and what is refused in one line."""

import csv
import sys
import types
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import feddst
from feddst.cli.main import main
from feddst.core.batches import Batch
from feddst.data import DataConfig, Dataset, federate, load
from feddst.errors import DataError, FeddstError, OptionError
from feddst.runtime.loop import Silent

ROWS = [["age", "size", "who", "grade", "y"]] + [
    [str(20 + at), f"{at / 4}", f"p{at % 3}", "abc"[at % 3], f"{at * 0.5}"] for at in range(20)
]


def written(path: Path, rows: Sequence[Sequence[str]] = ROWS, delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def config(path: Path, **options: Any) -> DataConfig:
    return DataConfig(**{"dataset": "file", "root": str(path), "inputs": ("age", "size"), "target": "y"} | options)


def one(batch: Batch) -> torch.Tensor:
    assert isinstance(batch, torch.Tensor)
    return batch


def test_a_table_becomes_normalised_features_and_numbers(tmp_path: Path) -> None:
    data = load(config(written(tmp_path / "t.csv")))
    assert (data.name, len(data.train), len(data.test), data.classes) == ("t", 16, 4, ())
    seen = data.train.read()
    # Each column of the training rows has mean 0 and standard deviation 1 now.
    torch.testing.assert_close(one(seen.inputs).mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(one(seen.inputs).std(0, correction=0), torch.ones(2))
    assert one(seen.inputs).dtype == one(seen.targets).dtype == torch.float32
    # A row is age 20 + k, size k / 4, y k / 2: what is read back must agree.
    raw = one(seen.inputs).double() * torch.tensor(data.std) + torch.tensor(data.mean)
    torch.testing.assert_close(raw[:, 0] - 20, 2 * one(seen.targets).double(), atol=1e-4, rtol=0)
    torch.testing.assert_close(one(data.inputs(raw.numpy())), one(seen.inputs), atol=1e-5, rtol=0)


def test_the_rows_to_test_on_are_always_the_same(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv")
    first, second = (load(config(path)) for _ in range(2))
    assert torch.equal(first.test_labels, second.test_labels)
    values = torch.cat([first.train_labels, first.test_labels]).sort().values
    torch.testing.assert_close(values, torch.arange(20) / 2)
    assert len(load(config(path, test_share=0.5)).test) == 10


def test_another_file_is_tested_on(tmp_path: Path) -> None:
    train, test = written(tmp_path / "a.csv"), written(tmp_path / "b.csv", [ROWS[0], *ROWS[3:6]])
    data = load(config(train, test=str(test)))
    assert (len(data.train), data.test_labels.tolist()) == (20, [1.0, 1.5, 2.0])
    # 2 / 4 and 22: (22 − 29.5) / √(399/12), with the mean and deviation of the training rows.
    assert float(one(data.test.read().inputs)[0, 0]) == pytest.approx((22 - 29.5) / (399 / 12) ** 0.5)
    with pytest.raises(OptionError, match=r"data\.test_share has no effect with data\.test"):
        load(config(train, test=str(test), test_share=0.1))


def test_text_and_whole_numbers_are_classes_and_owners_are_clients(tmp_path: Path) -> None:
    path = written(tmp_path / "t.tsv", delimiter="\t")
    asked = config(path, target="grade", owner="who", partition="owner", clients=3)
    clients = federate(asked, seed=0)
    assert clients.dataset.classes == ("a", "b", "c")
    # Person p0 has the rows 0, 3, 6 …, whose grade is a, and so on.
    assert [np.flatnonzero(row).tolist() for row in clients.class_counts()] == [[0], [1], [2]]
    assert load(config(path, inputs=("size",), target="age")).num_classes == 40


def test_a_constant_column_is_only_centred(tmp_path: Path) -> None:
    rows = [["x", "same", "y"], *[[str(at), "7.1", str(at % 2)] for at in range(10)]]
    data = load(config(written(tmp_path / "t.csv", rows), inputs=()))
    assert data.input_shape == (2,)
    assert one(data.train.read().inputs)[:, 1].abs().max() < 1e-6


def test_arrays_are_taken_as_they_are(tmp_path: Path) -> None:
    images = np.arange(10 * 4 * 4, dtype=np.uint8).reshape(10, 4, 4)
    np.savez(tmp_path / "a.npz", x=images, y=np.arange(10) % 2, person=np.repeat(["u", "v"], 5))
    asked = config(tmp_path / "a.npz", inputs=(), target="", owner="person", test=str(tmp_path / "a.npz"))
    data = load(asked)
    assert (data.input_shape, data.classes, data.mean) == ((1, 4, 4), ("0", "1"), ())
    assert data.owners is not None
    assert data.owners[0].tolist() == [0] * 5 + [1] * 5
    assert torch.equal(data.train_images[:, 0], torch.from_numpy(images))


def test_a_run_and_the_picture_of_its_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "t.csv")
    words = "--data.dataset file --data.root t.csv --data.inputs age,size --data.target y --data.partition iid"
    words += " --data.clients 4 --data.images_per_class 2"
    assert main(["data", "show", *words.split(), "--out", "x.png"]) == 0
    shown = capsys.readouterr().out
    assert "client" in shown
    assert "classes" not in shown.splitlines()[1]
    chosen = feddst.configure(
        rounds=2,
        data={
            "dataset": "file",
            "root": "t.csv",
            "target": "y",
            "inputs": ("age", "size"),
            "partition": "iid",
            "clients": 4,
            "images_per_class": 2,
        },
        cohort={"size": 2},
        local={"objective": "squared-error", "epochs": 1},
        engine={"workers": 1},
    )
    result = feddst.run(chosen, model=lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)))
    assert result.rows[-1].metric.name == "rmse"


def test_a_card_says_file_and_not_where_it_lay(tmp_path: Path) -> None:
    tables = {"root": str(written(tmp_path / "t.csv")), "test": str(written(tmp_path / "other.csv"))}
    chosen = feddst.configure(
        rounds=1,
        data={"dataset": "file", "target": "y", "inputs": ("age", "size"), "partition": "unequal", "clients": 2}
        | tables,
        cohort={"size": 1},
        local={"objective": "squared-error", "epochs": 1},
        engine={"workers": 1},
    )
    result = feddst.run(chosen, out=tmp_path / "run", watcher=Silent())
    card = feddst.export(result, "sparse", tmp_path / "mlp.fdst").card.read_text()
    assert "--data.dataset file --data.root FILE" in card
    assert "--data.test FILE" in card
    assert str(tmp_path) not in card


def table(path: Path, at: int, column: int, value: str) -> Path:
    """The table with another value in one place."""
    rows = [list(row) for row in ROWS]
    rows[at][column] = value
    return written(path, rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": ""}, "data.target must name the column of t.csv to predict: age, size, who, grade, y"),
        ({"target": "z"}, "data.target: t.csv has no column 'z', it has age, size, who, grade, y"),
        ({"inputs": ("z",)}, "data.inputs: t.csv has no column 'z', it has age, size, who, grade, y"),
        ({"inputs": ("y",)}, "data.inputs must not have 'y', which is the target or the owner"),
        ({"owner": "z"}, "data.owner: t.csv has no column 'z', it has age, size, who, grade, y"),
        (
            {"inputs": ()},
            "t.csv: column 'who' must be numbers, got 'p0' in row 1; fill in what is missing and turn text into "
            "numbers (a 0/1 column for each value), or choose others with data.inputs",
        ),
        ({"test_share": 0.01}, "data.test_share must leave rows to train and to test on: 0.01 of 20 rows is 0"),
        ({"root": ""}, "data.root must name a CSV, TSV, Parquet or npz file when data.dataset is file"),
        ({"root": "t.xls"}, "data.root must be a file that ends in .csv, .tsv, .parquet, .npz, got 't.xls'"),
        ({"root": "none.csv"}, "data.root: none.csv does not exist"),
        ({"root": "none.npz"}, "data.root: none.npz does not exist"),
        ({"test": "a.npz"}, "data.test: a.npz does not exist"),
        ({"dataset": "mnist", "root": ""}, "data.target has no effect with data.dataset mnist"),
    ],
)
def test_what_cannot_be_done_is_said(
    options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "t.csv")
    with pytest.raises(FeddstError) as refused:
        load(config(Path("t.csv"), **options))
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("at", "column", "value", "options", "said"),
    [
        (3, 0, "", {}, "column 'age' must be numbers, got nothing in row"),
        (3, 0, "nan", {}, "column 'age' must be numbers, got 'nan' in row"),
        (3, 1, "much", {}, "column 'size' must be numbers, got 'much' in row"),
        (3, 4, "", {}, "the target 'y' is missing in row"),
        (3, 4, "?", {}, "the target 'y' must be numbers or text throughout, got '?' in row"),
        (3, 2, "", {"owner": "who"}, "the owner 'who' is missing in row"),
        (0, 1, "age", {}, "names the column 'age' more than once"),
    ],
)
def test_a_bad_value_is_named_by_its_place(
    at: int, column: int, value: str, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as refused:
        load(config(table(tmp_path / "t.csv", at, column, value), **options))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_class_that_only_test_rows_have_is_refused(tmp_path: Path) -> None:
    test = table(tmp_path / "b.csv", 2, 3, "z")
    with pytest.raises(DataError, match="'grade' is 'z' in row 2 to be tested on, a class that no training row has"):
        load(config(written(tmp_path / "a.csv"), target="grade", test=str(test)))


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
@given(content=st.binary(max_size=200))
@settings(max_examples=60)
def test_a_hostile_file_gives_one_line(suffix: str, content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("hostile") / f"t{suffix}"
    path.write_bytes(content)
    with pytest.raises(FeddstError) as refused:
        load(config(path))
    assert "\n" not in str(refused.value)


@given(at=st.integers(0, 400), byte=st.integers(0, 255))
@settings(max_examples=60)
def test_a_damaged_npz_file_gives_one_line_or_its_arrays(
    at: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "t.npz"
    np.savez_compressed(path, x=np.ones((8, 3)), y=np.arange(8) / 4)
    whole = bytearray(path.read_bytes())
    whole[at % len(whole)] = byte
    path.write_bytes(bytes(whole))
    said = ""
    try:
        assert isinstance(load(config(path, inputs=(), target="")), Dataset)
    except FeddstError as error:
        said = str(error)
    assert "\n" not in said


def test_objects_in_an_npz_file_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}, {}], dtype=object), y=np.arange(2))
    with pytest.raises(DataError, match="holds Python objects, which are not read"):
        load(config(tmp_path / "a.npz", inputs=(), target=""))


def test_arrays_that_fill_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feddst.data.files.LARGEST", 1000)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\0" * 2000)
    with pytest.raises(DataError, match="take more than the 1000 bytes allowed"):
        load(config(tmp_path / "a.npz", inputs=(), target=""))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"a": np.ones((4, 2)), "y": np.arange(4)}, ""),
        ({"x": np.ones((4, 2)), "y": np.arange(3)}, "must have equally many examples each, got x 4, y 3"),
        ({"x": np.ones((4, 2)), "y": np.array("abcd")}, "must have equally many examples each"),
        ({"x": np.ones((4, 2))}, "it has no targets or y, but x"),
        ({"a": np.ones((4, 2)), "b": np.ones((4, 2)), "y": np.arange(4)}, "must have one array of inputs .* got a, b"),
        ({"x": np.array(["a"] * 4), "y": np.arange(4)}, r"a\.npz: x must be numbers, got an array of text"),
        ({"x": np.ones((0, 2)), "y": np.arange(0)}, r"a\.npz has no rows"),
    ],
)
def test_which_arrays_are_which(arrays: dict[str, Any], said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    asked = config(tmp_path / "a.npz", inputs=(), target="", test_share=0.5)
    if not said:
        assert load(asked).input_shape == (2,)
        return
    with pytest.raises(FeddstError, match=said):
        load(asked)


class FakeTable:
    """As much of a pyarrow table as is asked for."""

    def __init__(self, **columns: Sequence[Any]) -> None:
        self.columns = columns
        self.column_names = tuple(columns)

    def column(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(to_pylist=lambda: self.columns[name])


def as_if_parquet(table: FakeTable, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Parquet file with this table, as a pyarrow that is not there reads it."""
    path.write_bytes(b"PAR1")
    arrow = types.ModuleType("pyarrow")
    arrow.ArrowException = type("ArrowException", (Exception,), {})  # type: ignore[attr-defined]
    parquet = types.ModuleType("pyarrow.parquet")
    parquet.ParquetFile = lambda path: SimpleNamespace(read=lambda: table)  # type: ignore[attr-defined]
    arrow.parquet = parquet  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    return path


NUMBERS = [1.0, 2.0, 3.5, 4.0, 5.0]


def test_parquet_files_are_read_by_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real one is asked by tests/data/test_huggingface.py, where it is installed."""
    path = as_if_parquet(FakeTable(age=NUMBERS, size=NUMBERS, y=NUMBERS), tmp_path / "t.parquet", monkeypatch)
    data = load(config(path))
    assert (len(data.train), len(data.test), data.input_shape) == (4, 1, (2,))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs pyarrow: pip install feddst\[hf\]"):
        load(config(path))


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("age", r"column 'age' must be numbers, got \[1.0, 2.0\] in row 1"),
        ("y", r"the target 'y' must be one number or text for each row, got \[1.0, 2.0\] in row 1"),
    ],
)
def test_a_column_of_lists_is_refused(column: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equally long ones must not become an array with two dimensions."""
    columns: dict[str, Any] = {"age": NUMBERS, "size": NUMBERS, "y": NUMBERS, column: [[1.0, 2.0]] * 5}
    with pytest.raises(DataError, match=said):
        load(config(as_if_parquet(FakeTable(**columns), tmp_path / "t.parquet", monkeypatch)))


def test_a_target_beyond_64_bits_is_a_number_and_no_class(tmp_path: Path) -> None:
    rows = [["age", "size", "y"], *([str(at), "1", str(at % 3)] for at in range(20)), ["1", "1", "9" * 20]]
    data = load(config(written(tmp_path / "t.csv", rows)))
    assert data.classes == ()
    assert float(max(data.train_labels.max(), data.test_labels.max())) == pytest.approx(1e20)
