"""Options under names that they had in earlier versions: read everywhere, with one line on each place."""

import json
import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import feddst
from feddst.cli.arguments import parse
from feddst.errors import OptionError
from feddst.options import flatten, options_of, updated
from feddst.runtime import RunConfig, toml
from feddst.runtime.config import stored_options
from feddst.runtime.old_names import OPTIONS, renewed
from feddst.runtime.storage import RunDirectory
from feddst.studies.comparison import parse_entry
from feddst.studies.reproduce.study import read_study

VALUES: Mapping[str, Any] = {
    "averaged": 0.9,
    "ballot.grown": "all",
    "ballot.keep": "most-held",
    "data.copies": 3,
    "server.beta": 0.5,
}
"""Every old name, with another value than its option's default."""
TODAY = {"ema": 0.9, "merge.grown": "all", "merge.keep": "most-held", "data.augmentation": 3, "server.momentum": 0.5}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_every_old_name_stands_for_an_option_that_there_is() -> None:
    known = {opt.name for opt in options_of(RunConfig)}
    assert set(OPTIONS) == set(VALUES)
    assert set(OPTIONS.values()) <= known
    assert known.isdisjoint(OPTIONS)


def test_old_names_become_todays_and_the_others_stay(caplog: pytest.LogCaptureFixture) -> None:
    assert renewed({"seed": 4, **VALUES}) == {"seed": 4, **TODAY}
    assert lines(caplog) == []


def test_one_line_names_all_of_them(caplog: pytest.LogCaptureFixture) -> None:
    renewed({"averaged": 0.5, "seed": 4, "data.copies": 2}, "old.toml")
    assert lines(caplog) == [
        "old.toml has names of earlier versions: averaged is ema now, data.copies is data.augmentation now"
    ]


def test_an_option_is_not_given_under_both_names() -> None:
    with pytest.raises(OptionError, match="averaged is called ema now, and both are given"):
        renewed({"averaged": 0.5, "ema": 0.5})


def test_flags(caplog: pytest.LogCaptureFixture) -> None:
    words = ["--averaged", "0.9", "--data.copies=3", "--ballot.keep", "most-held", "--rounds", "4"]
    found = parse(words, options_of(RunConfig)).values
    assert found == {"ema": 0.9, "data.augmentation": 3, "merge.keep": "most-held", "rounds": 4}
    assert [line.partition(":")[0] for line in lines(caplog)] == ["the command line has names of earlier versions"]
    with pytest.raises(OptionError, match="both are given"):
        parse(["--averaged", "0.9", "--ema", "0.9"], options_of(RunConfig))


def test_python(caplog: pytest.LogCaptureFixture) -> None:
    made = feddst.configure(averaged=0.9, data={"copies": 3})
    assert made == feddst.configure(ema=0.9, data={"augmentation": 3})
    assert len(lines(caplog)) == 1


def old_file(path: Path, config: RunConfig) -> None:
    """The options of a config in a file, under their old names."""
    old = {new: name for name, new in OPTIONS.items()}
    lines = [f"{old.get(name, name)} = {json.dumps(value)}" for name, value in flatten(config).items()]
    path.write_text("\n".join([*lines, ""]))


def test_a_run_directory_is_read_and_gone_on_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config, directory = updated(RunConfig(), TODAY), RunDirectory(tmp_path)
    old_file(directory.config, config)
    assert "averaged" in toml.read(directory.config)
    assert directory.stored_config() == config
    directory.refuse_other(config)
    assert lines(caplog) == []
    directory.reopen(config)
    [line] = lines(caplog)
    assert line.startswith(f"{directory.config} has names of earlier versions: averaged is ema now, ")
    assert not set(toml.read(directory.config)) & set(OPTIONS)
    directory.reopen(config)
    assert len(lines(caplog)) == 1


def test_what_is_written_has_todays_names() -> None:
    assert stored_options(TODAY) == stored_options(VALUES)
    assert not set(tomllib.loads(toml.dump(stored_options(VALUES), "feddst run"))) & set(OPTIONS)


def test_an_entry_of_a_comparison() -> None:
    assert parse_entry("feddst:ballot.grown=all").overrides == {"merge.grown": "all"}
    assert parse_entry("feddst:ballot.grown=all").label == "feddst:ballot.grown=all"


def test_a_study(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "old.toml"
    path.write_text(
        "caps = [1]\n[options]\naveraged = 0.5\n"
        "[rows.one]\noptions = { ballot.keep = 'most-held' }\n[rows.two]\noptions = { ballot.keep = 'largest' }\n"
    )
    content = read_study(path)
    assert content["options"] == {"ema": 0.5}
    assert [row["options"] for row in content["rows"].values()] == [
        {"merge.keep": "most-held"},
        {"merge.keep": "largest"},
    ]
    assert lines(caplog) == [
        f"{path} has names of earlier versions: averaged is ema now, ballot.keep is merge.keep now"
    ]
