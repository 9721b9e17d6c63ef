"""Options: what they allow, how errors read, and that text and values come to the same."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddst.cli.arguments import parse
from feddst.errors import OptionError
from feddst.options import Option, as_words, flatten, option, options_of, updated, validate
from feddst.runtime import RunConfig


@dataclass(frozen=True)
class Inner:
    share: float = option(0.5, "a share", at_least=0, below=1)
    kind: Literal["plain", "fancy"] = option("plain", "a kind")


@dataclass(frozen=True)
class Outer:
    count: int = option(3, "a count", at_least=1)
    names: tuple[str, ...] = option((), "names")
    sizes: tuple[int, ...] = option((1, 2), "sizes", at_least=0)
    on: bool = option(False, "a switch")
    inner: Inner = Inner()


OPTIONS: dict[str, Option] = {opt.name: opt for opt in options_of(Outer)}


def test_options_are_found_in_order_by_dotted_name() -> None:
    assert list(OPTIONS) == ["count", "names", "sizes", "on", "inner.share", "inner.kind"]
    assert flatten(Outer()) == {name: opt.default for name, opt in OPTIONS.items()}


def test_updating_changes_only_what_is_named() -> None:
    changed = updated(Outer(), {"count": 7, "inner.share": 0})
    assert changed == Outer(count=7, inner=Inner(share=0.0))
    assert type(changed.inner.share) is float


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", 0, "count must be at least 1, got 0"),
        ("count", 1.5, "count must be a whole number at least 1, got 1.5"),
        ("count", True, "count must be a whole number at least 1, got True"),
        ("inner.share", 1.0, r"inner.share must be in [0, 1), got 1.0"),
        ("inner.share", float("nan"), r"inner.share must be in [0, 1), got nan"),
        ("inner.kind", "fanci", "inner.kind must be one of plain, fancy, got 'fanci'; did you mean 'fancy'?"),
        ("sizes", (1, -1), "sizes must be at least 0, got -1"),
        ("sizes", 3, "sizes must be a list, got 3"),
        ("names", "abc", "names must be a list, got 'abc'"),
        ("inner.shar", 0.1, "unknown option 'inner.shar'; did you mean 'inner.share'?"),
        ("zzz", 1, "unknown option 'zzz'"),
    ],
)
def test_bad_values_are_named_with_what_is_allowed(name: str, value: Any, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        updated(Outer(), {name: value})
    assert str(caught.value) == message


def test_numbers_of_numpy_are_numbers() -> None:
    changed = updated(Outer(), {"count": np.int64(7), "inner.share": np.float32(0.25), "sizes": np.arange(3)})
    assert (changed.count, changed.inner.share, changed.sizes) == (7, 0.25, (0, 1, 2))
    assert (type(changed.count), type(changed.inner.share), type(changed.sizes[0])) == (int, float, int)


def test_numbers_beyond_every_float_are_refused_like_others() -> None:
    assert updated(Outer(), {"count": 10**400}).count == 10**400
    with pytest.raises(OptionError, match=r"inner\.share must be a number in"):
        updated(Outer(), {"inner.share": 10**400})


def test_validation_reaches_into_groups() -> None:
    with pytest.raises(OptionError, match=r"inner\.share must be in"):
        validate(Outer(inner=Inner(share=2.0)))
    validate(Outer())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "12", 12),
        ("names", "a,b", ("a", "b")),
        ("names", "", ()),
        ("sizes", "3,4", (3, 4)),
        ("on", "yes", True),
        ("on", "False", False),
        ("inner.share", "1e-3", 0.001),
    ],
)
def test_words_are_parsed(name: str, text: str, value: Any) -> None:
    assert OPTIONS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"), [("count", "many"), ("count", "1.0"), ("on", "maybe"), ("inner.share", "half")]
)
def test_words_that_are_no_value_are_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .*, got '{text}'"):
        OPTIONS[name].parse(text)


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True), st.lists(st.integers(0, 99)))
def test_text_and_value_agree(count: int, share: float, sizes: list[int]) -> None:
    assert OPTIONS["count"].parse(str(count)) == count
    assert OPTIONS["inner.share"].parse(repr(share)) == share
    assert OPTIONS["sizes"].parse(",".join(map(str, sizes))) == tuple(sizes)


def test_options_as_words_are_read_back_as_they_were() -> None:
    typed = {"seed": 3, "model.dense": ("a", "b"), "oneshot.server_prunes": True, "local.lr": 0.5}
    assert as_words(typed)[-3] == "--oneshot.server_prunes=true"
    assert parse(as_words(typed), options_of(RunConfig)).values == typed
