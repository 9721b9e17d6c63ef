"""CIFAR's pickles are read, and no pickle runs anything."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feddst.data.pickles import load_pickle
from feddst.errors import DataError

PIXELS = np.arange(6, dtype=np.uint8).reshape(2, 3)


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_and_lists_are_read(protocol: int, order: Any) -> None:
    content = pickle.dumps({"data": PIXELS.copy(order), b"labels": [3, 1]}, protocol)
    loaded = load_pickle(content, "x")
    assert loaded["labels"] == [3, 1]
    assert loaded["data"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_malicious_pickle_does_not_run(tmp_path: Path, protocol: int) -> None:
    witness = tmp_path / "ran"
    content = pickle.dumps({"data": Calls(os.mkdir, str(witness))}, protocol)
    with pytest.raises(DataError, match=r"evil: damaged or not a CIFAR file \(the name posix.mkdir is not allowed\)"):
        load_pickle(content, "evil")
    assert not witness.exists()
    pickle.loads(content)
    assert witness.exists(), "the pickle was not malicious after all"


@pytest.mark.parametrize("name", ["builtins\neval", "os\nsystem", "numpy\nload", "numpy.core.multiarray\nfromfile"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="is not allowed"):
        load_pickle(f"c{name}\n.".encode(), "x")


@pytest.mark.parametrize("name", ["numpy\ndtype", "numpy\nndarray", "_codecs\nencode"])
def test_the_allowed_names_cannot_be_altered(name: str) -> None:
    # BUILD (b) on the class itself, with a state that would replace its attributes.
    with pytest.raises(DataError):
        load_pickle(f"c{name}\n(N(dVvalue\nI1\nstb.".encode(), "x")
    assert load_pickle(pickle.dumps({"data": PIXELS}, 2), "x")["data"].tolist() == PIXELS.tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps([1, 2]), "it holds no dictionary"),
        (pickle.dumps({"data": PIXELS.astype(np.int32)}, 2), "an array is not of unsigned bytes"),
        (pickle.dumps({"data": np.array([None])}, 2), "an array is not of unsigned bytes"),
        (pickle.dumps({"data": PIXELS}, 2)[:-9], "damaged"),
        (b"", "damaged"),
        (b"\x80\x04P1\n.", "damaged"),
        (b"no pickle at all", "damaged"),
    ],
)
def test_damage_is_one_error(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load_pickle(content, "x")
    assert "\n" not in str(refused.value)


def test_other_codecs_are_refused() -> None:
    with pytest.raises(DataError, match="codec 'rot13' is not allowed"):
        load_pickle(b"c_codecs\nencode\n(Vabc\nVrot13\ntR.", "x")


@pytest.mark.parametrize("store", [b"r" + (1 << 28).to_bytes(4, "little"), b"p268435456\n", b"q\xff"])
def test_a_value_remembered_under_a_large_number_is_refused(store: bytes) -> None:
    # An empty dictionary, then its number in the memo; the unpickler would make room for that many.
    with pytest.raises(DataError, match=r"it remembers a value as number \d+ in step 1"):
        load_pickle(b"}" + store + b".", "x")


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_from_zero_or_one_are_read(first: int) -> None:
    assert load_pickle(b"}" + bytes([ord("q"), first]) + b".", "x") == {}  # Python 3 counts from 0, Python 2 from 1


def test_a_length_beyond_the_content_is_refused() -> None:
    with pytest.raises(DataError, match="bytes"):
        load_pickle(b"\x80\x04\x8e" + (1 << 50).to_bytes(8, "little") + b"abc.", "x")
