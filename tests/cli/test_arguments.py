from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddst.cli.arguments import Arguments, parse
from feddst.cli.settings import RunArguments
from feddst.errors import OptionError
from feddst.options import Option, options_of
from feddst.runtime import RunConfig

OPTIONS = options_of(RunArguments) + options_of(RunConfig)


def values_of(opt: Option) -> st.SearchStrategy[Any]:
    if opt.choices:
        return st.sampled_from(opt.choices)
    low, high, below = opt.bounds.at_least, opt.bounds.at_most, opt.bounds.below
    one: st.SearchStrategy[Any] = {
        int: st.integers(int(low or 0), 10**6 if high is None else int(high)),
        float: st.floats(low if low is not None else 0.001, high if high is not None else 0.99 * (below or 1)),
        str: st.text("abc./*", min_size=1),
        bool: st.just(True),
    }[opt.type]
    return st.lists(one).map(tuple) if opt.repeated else one


@st.composite
def chosen(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(OPTIONS), unique_by=lambda opt: opt.name))
    return {opt.name: draw(values_of(opt)) for opt in names}


def written(name: str, value: Any, joined: bool, dashes: bool) -> list[str]:
    name = "--" + (name.replace("_", "-") if dashes else name)
    if value is True:
        return [name]
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return [f"{name}={text}"] if joined else [name, text]


@given(chosen(), st.booleans(), st.booleans())
def test_what_is_written_is_read_back(values: dict[str, Any], joined: bool, dashes: bool) -> None:
    words = [word for name, value in values.items() for word in written(name, value, joined, dashes)]
    assert parse(words, OPTIONS).values == values


def test_a_negative_number_is_a_value_and_not_an_option() -> None:
    with pytest.raises(OptionError, match=r"^local\.lr must be above 0, got -1\.0$"):
        parse(["--local.lr", "-1"], OPTIONS)


def test_a_value_that_looks_like_an_option_needs_an_equals_sign() -> None:
    assert parse(["--out=--odd"], OPTIONS).values == {"out": "--odd"}
    with pytest.raises(OptionError, match="--out needs a value"):
        parse(["--out", "--odd"], OPTIONS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sparisty.level", "0.5"], "unknown option --sparisty.level; did you mean --sparsity.level?"),
        (["--sparisty-level=0.5"], "unknown option --sparisty-level; did you mean --sparsity.level?"),
        (["-rounds", "5"], "unknown option -rounds; did you mean --rounds?"),
        (["--zzzzzz", "5"], "unknown option --zzzzzz"),
        (["--rounds"], "--rounds needs a value: a whole number at least 0"),
        (["--rounds", "--seed", "1"], "--rounds needs a value: a whole number at least 0"),
        (["--rounds", "5", "--rounds=6"], "--rounds is given twice"),
        (["--cap_gib", "1", "--cap-gib", "1"], "--cap_gib is given twice"),
        (["--rounds", "many"], "rounds must be a whole number at least 0, got 'many'"),
        (["--resume=perhaps"], "resume must be true or false, got 'perhaps'"),
        (["five"], "unexpected argument 'five'; options are written --name value"),
    ],
)
def test_what_cannot_be_read_is_named(words: list[str], message: str) -> None:
    with pytest.raises(OptionError) as error:
        parse(words, OPTIONS)
    assert str(error.value) == message


def test_a_flag_stands_alone_or_with_its_value() -> None:
    assert parse(["--resume", "--seed", "3"], OPTIONS).values == {"resume": True, "seed": 3}
    assert parse(["--resume=no"], OPTIONS).values == {"resume": False}


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_wins_over_what_follows(word: str) -> None:
    assert parse(["--rounds", "3", word, "--nonsense"], OPTIONS) == Arguments(help=True)


def test_words_without_a_name_are_kept_where_a_command_takes_them() -> None:
    assert parse(["quick"], [], words=1).words == ("quick",)
    with pytest.raises(OptionError, match="unexpected argument 'slow'"):
        parse(["quick", "slow"], [], words=1)
