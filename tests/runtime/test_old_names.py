"""Options and methods under names that they had in earlier versions: read everywhere, with one line on each place."""

import json
import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import feddst
from feddst.cli.arguments import Arguments, parse
from feddst.cli.settings import gather
from feddst.errors import OptionError
from feddst.methods import METHODS as METHODS_NOW
from feddst.methods import Adaptive
from feddst.options import flatten, options_of, updated
from feddst.runtime import RunConfig, toml
from feddst.runtime.config import config_of, make_method, refuse_ineffective, stored_options
from feddst.runtime.old_names import METHODS, OPTIONS, named_now, renewed
from feddst.runtime.storage import RunDirectory
from feddst.studies.comparison import parse_entry
from feddst.studies.reproduce.study import StudyConfig, read_study

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


# Methods that were crossed with others


def test_every_cross_is_a_method_of_today_with_options() -> None:
    for name, former in METHODS.items():
        assert name not in METHODS_NOW
        assert former.method in METHODS_NOW
        updated(RunConfig(), former.options)


def test_what_a_former_name_stands_for_gives_way_to_what_is_given() -> None:
    assert named_now({"method": "feddst+fedprox", "seed": 3}) == {"method": "feddst", "proximal.mu": 1.0, "seed": 3}
    assert named_now({"method": "feddst+fedprox", "proximal.mu": 0.5})["proximal.mu"] == 0.5
    assert named_now({"method": "feddst", "seed": 3}) == {"method": "feddst", "seed": 3}
    assert config_of({"method": "sprout+fedadam"}) == config_of({"method": "sprout", "server.optimizer": "adam"})


def test_a_proximal_term_of_size_0_took_partial_work_all_the_same() -> None:
    config = config_of({"method": "feddst+fedprox", "proximal.mu": 0.0})
    method = make_method(config)
    assert method.accepts_partial
    assert config.proximal.pull == 0


def test_one_line_names_methods_too(caplog: pytest.LogCaptureFixture) -> None:
    renewed({"method": "feddst+fedadam", "averaged": 0.5}, "old.toml")
    renewed({"methods": ("fedavgm", "feddst+fedprox:ballot.grown=all")}, "the command line")
    assert lines(caplog) == [
        "old.toml has names of earlier versions: averaged is ema now, "
        "feddst+fedadam is feddst with server.optimizer adam now",
        "the command line has names of earlier versions: ballot.grown is merge.grown now, "
        "feddst+fedprox is feddst with proximal.mu 1.0 now",
    ]


def test_files_that_named_every_option_gave_the_proximal_term_to_all() -> None:
    """Only fedprox and its crosses looked at it."""
    old = {new: name for name, new in OPTIONS.items()}
    whole = {old.get(name, name): value for name, value in flatten(RunConfig()).items()}
    whole |= {"proximal.mu": 1.0, "adaptive.beta1": 0.0}
    del whole["server.optimizer"]  # came when the term became every method's
    for method, mu in {"feddst": 0.0, "sprout+fedadam": 0.0, "fedprox": 1.0, "feddst+fedprox": 1.0}.items():
        assert stored_options({**whole, "method": method}).proximal.mu == mu
    assert stored_options({"method": "feddst", "proximal.mu": 1.0}).proximal.mu == 1.0  # of this version
    assert stored_options({**whole, "method": "feddst+fedadagrad"}).adaptive == Adaptive()  # where beta1 was fixed


def test_a_proximal_term_that_was_typed_is_kept() -> None:
    made = feddst.configure(method="feddst", averaged=0.5, proximal={"mu": 0.1})
    assert made == feddst.configure(method="feddst", ema=0.5, proximal={"mu": 0.1})
    crossed = feddst.configure(method="feddst+fedadam", proximal={"mu": 0.5})
    assert crossed == feddst.configure(method="feddst", server={"optimizer": "adam"}, proximal={"mu": 0.5})
    assert crossed.proximal.mu == 0.5


def test_what_only_some_methods_of_a_comparison_looked_at_is_not_given_to_all() -> None:
    with pytest.raises(OptionError, match=r"proximal\.mu is an option of every method now"):
        renewed({"methods": ("feddst", "feddst+fedprox"), "proximal.mu": 0.5})
    assert renewed({"methods": ("fedprox", "feddst+fedprox"), "proximal.mu": 0.5})["proximal.mu"] == 0.5


def test_an_entry_by_a_former_name_keeps_it_as_its_label() -> None:
    entry = parse_entry("feddst+fedprox:readjust.alpha=0.1")
    assert (entry.label, entry.directory) == ("feddst+fedprox:readjust.alpha=0.1", "feddst+fedprox-readjust.alpha=0.1")
    config = entry.config(RunConfig(), 3)
    assert (config.method, config.proximal.mu, config.readjust.alpha, config.seed) == ("feddst", 1.0, 0.1, 3)
    shared = updated(RunConfig(), {"proximal.mu": 0.5})
    assert entry.config(shared, 3, frozenset({"proximal.mu"})).proximal.mu == 0.5
    assert parse_entry("feddst").config(RunConfig(), 3).proximal.mu == 0.0


def test_a_study_with_crosses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "old.toml"
    text = "caps = [1]\n[options]\nmethod = 'sprout+fedadam'\n[rows.one]\n[rows.two]\noptions = {{ method = '{}' }}\n"
    path.write_text(text.format("randommask+fedadam"))
    study = StudyConfig(str(path))
    study.check()
    made = [study.run_config(row, 0) for row in study.all_rows()]
    assert [(one.method, one.server.optimizer) for one in made] == [("sprout", "adam"), ("randommask", "adam")]
    assert len(lines(caplog)) == 1
    path.write_text(text.format("feddst+fedprox").replace("[options]", "[options]\nproximal.mu = 0.5"))
    with pytest.raises(OptionError, match=r"proximal\.mu is an option of every method now"):
        StudyConfig(str(path)).check()


def test_a_file_of_every_option_makes_the_same_run(tmp_path: Path) -> None:
    """As in `feddst run --config RUN/config.toml`, where nothing that the file says may be refused."""
    path = tmp_path / "old.toml"
    config = config_of({"method": "feddst", "server.optimizer": "adagrad", "sparsity.level": 0.9})
    old_file(path, config)
    then = {
        'server.optimizer = "adagrad"\n': "",
        "adaptive.beta1 = 0.9": "adaptive.beta1 = 0.0",
        'method = "feddst"': 'method = "feddst+fedadagrad"',
        "proximal.mu = 0.0": "proximal.mu = 1.0",
    }
    for now, before in then.items():
        assert now in path.read_text()
        path.write_text(path.read_text().replace(now, before))
    options = options_of(RunConfig)
    settings = gather(Arguments({"config": str(path)}), "run", options)
    assert config_of(settings.values) == config
    refuse_ineffective([config], settings.asked_for(options))


@pytest.mark.parametrize("methods", [5, "feddst", None])
def test_what_is_no_list_of_methods_is_for_others_to_refuse(methods: Any) -> None:
    assert renewed({"methods": methods, "averaged": 0.5}) == {"methods": methods, "ema": 0.5}
