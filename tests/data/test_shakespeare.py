"""The bundled plays by role, as windows of characters."""

import hashlib
import lzma
from pathlib import Path

import numpy as np
import pytest

from feddst.data import shakespeare
from feddst.data.mnist import BUNDLED
from feddst.data.shakespeare import (
    LETTERS,
    PADDING,
    UNKNOWN,
    VOCABULARY,
    WINDOW,
    Roles,
    encoded,
    roles,
    windows,
)
from feddst.errors import DataError


@pytest.fixture(scope="module")
def bundled() -> Roles:
    return roles()


def texts(part: shakespeare.Windows, role: int) -> str:
    """What a role says, put together again from its windows."""
    mine = part.owners == role
    first = part.inputs[mine][0, :1].tolist()
    return "".join((*LETTERS, "?")[number] for number in (*first, *part.targets[mine].reshape(-1)) if number != PADDING)


def test_the_characters_are_leafs() -> None:
    assert len(LETTERS) == len(set(LETTERS)) == UNKNOWN == 80
    assert (LETTERS[0], LETTERS[1], LETTERS[-1]) == ("\n", " ", "}")
    assert encoded("\n !é").tolist() == [0, 1, 2, 80]
    assert len(set(VOCABULARY)) == 81


@pytest.mark.parametrize("length", [2, 80, 81, 82, 161, 162])
def test_each_character_but_the_first_is_predicted_once_from_those_before(length: int) -> None:
    text = "".join(LETTERS[2 + number % 70] for number in range(length))
    inputs, targets = windows(text)
    assert inputs.shape == targets.shape == (-(-(length - 1) // WINDOW), WINDOW)
    flat_inputs, flat_targets = inputs.reshape(-1), targets.reshape(-1)
    assert flat_inputs[: length - 1].tolist() == encoded(text)[:-1].tolist()
    assert flat_targets[: length - 1].tolist() == encoded(text)[1:].tolist()
    assert (flat_targets[length - 1 :] == PADDING).all()
    assert (targets != PADDING).any(axis=1).all()  # no window is padding alone


def test_a_well_known_role(bundled: Roles) -> None:
    hamlet = bundled.names.index("hamlet: HAM")
    early, late = texts(bundled.train, hamlet), texts(bundled.test, hamlet)
    assert early.startswith("A little more than kin, and less than kind!\n")
    assert "To be, or not to be,--that is the question:--" in early
    assert "the rest is silence." in late
    speeches = early.count("\n"), late.count("\n")
    assert speeches[0] == (speeches[0] + speeches[1]) * 4 // 5


def test_clients_are_roles_of_a_certain_size(bundled: Roles) -> None:
    assert len(bundled.names) == len(set(bundled.names)) == 624
    assert len({name.partition(":")[0] for name in bundled.names}) == 37
    for part in (bundled.train, bundled.test):
        assert set(part.owners.tolist()) == set(range(624))
        assert (np.diff(part.owners) >= 0).all()
        assert part.inputs.min() >= 0
        assert part.inputs.max() <= UNKNOWN
    sizes = [len(texts(bundled.train, role)) + len(texts(bundled.test, role)) for role in range(0, 624, 50)]
    assert min(sizes) >= 1000
    assert len(roles(fewest=20_000).names) < 60


def test_a_role_of_two_speeches_has_one_in_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"x: A\nGood morrow.\nFarewell!\n\nx: B\nO!\n\nx: C\n1\n2\n3\n4\n5\n\n"
    (tmp_path / "small.xz").write_bytes(lzma.compress(text))
    monkeypatch.setattr(shakespeare, "SHA256", hashlib.sha256(text).hexdigest())
    found = roles(tmp_path / "small.xz", fewest=1)
    assert found.names == ("x: A", "x: C")  # B speaks once
    assert (texts(found.train, 0), texts(found.test, 0)) == ("Good morrow.\n", "Farewell!\n")
    assert (texts(found.train, 1), texts(found.test, 1)) == ("1\n2\n3\n4\n", "5\n")


def test_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "shakespeare.txt.xz"
    with pytest.raises(DataError, match=r"cannot be read .*reinstall feddst"):
        roles(path)
    path.write_bytes(shakespeare.PACKED.read_bytes()[:1000])
    with pytest.raises(DataError, match="cannot be read"):
        roles(path)
    path.write_bytes(lzma.compress(b"x: A\nGood morrow.\n\n"))
    with pytest.raises(DataError, match="its sha256 is not that of the packed texts"):
        roles(path)


def test_where_it_comes_from_lies_beside_it() -> None:
    assert "public domain" in (BUNDLED / "LICENSE-SHAKESPEARE").read_text()
