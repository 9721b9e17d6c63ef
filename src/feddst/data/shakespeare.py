"""What each role says in Shakespeare's plays, bundled with the package: predict each next character.

As in LEAF's Shakespeare, a client is a role of a play, the earlier four fifths of its speeches are for training and the
others for testing, and characters are numbered as LEAF numbers them. Unlike there, a network predicts the character
after each position, not only the one after a whole window, and windows do not overlap: each character is predicted
once.
"""

import hashlib
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from feddst.data.dataset import Dataset
from feddst.data.mnist import BUNDLED
from feddst.data.records import StoredRecords
from feddst.errors import DataError

PACKED = BUNDLED / "shakespeare.txt.xz"
SHA256 = "9f068e776d761c98eab4ef59eb0e1c3a900c93ee6f4fbd30cc691cd97b687671"
"""Of the unpacked text, which `scripts/pack_shakespeare.py` writes."""
LARGEST = 1 << 23

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 characters, by number."""
UNKNOWN = len(LETTERS)
"""The number of every other character."""
VOCABULARY = (*({"\n": "newline", " ": "space"}.get(letter, letter) for letter in LETTERS), "unknown")

WINDOW = 80
"""Characters that a network reads at once."""
FEWEST = 1_000
"""Characters of the smallest role that is a client."""
PADDING = -100
"""The target after a text has ended, which counts for nothing; PyTorch's usual one."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """Inputs and targets [n, WINDOW], and the role, by its number, that says each of them [n]."""

    inputs: Ints
    targets: Ints
    owners: Ints


@dataclass(frozen=True)
class Roles:
    """The clients' names, and what they say."""

    names: tuple[str, ...]
    train: Windows
    test: Windows


def load_shakespeare() -> Dataset:
    """Windows int32 [n, WINDOW], and the character after each position, int64 [n, WINDOW]; owners are roles."""
    found = roles()
    train, test = (
        StoredRecords(torch.from_numpy(part.inputs.astype(np.int32)), torch.from_numpy(part.targets))
        for part in (found.train, found.test)
    )
    return Dataset("shakespeare", train, test, owners=(found.train.owners, found.test.owners), vocabulary=VOCABULARY)


def roles(path: Path = PACKED, fewest: int = FEWEST) -> Roles:
    """The roles that say at least `fewest` characters in several speeches."""
    said = {
        name: speeches
        for name, speeches in _roles_of(_read(path))
        if len(speeches) > 1 and sum(map(len, speeches)) >= fewest
    }
    halves = [_split(speeches) for speeches in said.values()]
    return Roles(tuple(said), _joined(early for early, _ in halves), _joined(late for _, late in halves))


def encoded(text: str) -> Ints:
    """The characters' numbers [n]."""
    return np.array([_NUMBERS.get(letter, UNKNOWN) for letter in text], np.int64)


def windows(text: str) -> tuple[Ints, Ints]:
    """A text's characters but the last, and the one after each, both [n, WINDOW]; the last window is padded."""
    numbers = encoded(text)
    rows = -(-(len(numbers) - 1) // WINDOW)
    inputs = np.full(rows * WINDOW, UNKNOWN, np.int64)
    targets = np.full(rows * WINDOW, PADDING, np.int64)
    inputs[: len(numbers) - 1] = numbers[:-1]
    targets[: len(numbers) - 1] = numbers[1:]
    return inputs.reshape(rows, WINDOW), targets.reshape(rows, WINDOW)


_NUMBERS = {letter: number for number, letter in enumerate(LETTERS)}


def _split(speeches: list[str]) -> tuple[str, str]:
    """The first four fifths of the speeches, at least one, and the others, at least one; a line each."""
    early = min(max(len(speeches) * 4 // 5, 1), len(speeches) - 1)
    return "".join(f"{speech}\n" for speech in speeches[:early]), "".join(f"{speech}\n" for speech in speeches[early:])


def _joined(texts: Iterable[str]) -> Windows:
    parts = [windows(text) for text in texts]
    return Windows(
        np.concatenate([inputs for inputs, _ in parts]),
        np.concatenate([targets for _, targets in parts]),
        np.repeat(np.arange(len(parts)), [len(inputs) for inputs, _ in parts]),
    )


def _roles_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each role's name and speeches: lines, with an empty one after the last."""
    for lines in text.removesuffix("\n\n").split("\n\n"):
        name, *speeches = lines.split("\n")
        yield name, speeches


def _read(path: Path) -> str:
    try:
        with lzma.open(path) as stream:
            content = stream.read(LARGEST + 1)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"{path}: cannot be read ({error}); reinstall feddst") from None
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{path}: damaged (its sha256 is not that of the packed texts); reinstall feddst")
    return content.decode("ascii")
