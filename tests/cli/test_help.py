from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import feddst as package
from feddst.cli.main import COMMANDS
from feddst.data import DataConfig
from feddst.methods import METHODS
from feddst.options import options_of
from feddst.runtime import RunConfig
from feddst.runtime.presets import PRESETS

Call = Callable[..., Any]


@pytest.mark.parametrize("line", ["--help", "-h", "help"])
def test_the_program_lists_its_commands(feddst: Call, line: str) -> None:
    outcome = feddst(line)
    assert outcome.code == 0
    for command in ("run", "compare", "data show", "methods", "presets"):
        assert f"\n  {command} " in outcome.out


def test_without_words_the_program_shows_its_help(feddst: Call) -> None:
    assert feddst("").out == feddst("--help").out


def test_the_version(feddst: Call) -> None:
    assert feddst("--version").out == f"feddst {package.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_help(feddst: Call, name: str) -> None:
    shown = " ".join(feddst(f"{name} --help").out.split())
    assert shown.startswith("usage: feddst " + " ".join(COMMANDS[name].usage.split()))
    assert all(f"--{option.name}" in shown for option in COMMANDS[name].options())


@pytest.mark.parametrize("group", ["data", "model", "flower"])
@pytest.mark.parametrize("asked", ["", " --help", " -h"])
def test_a_group_lists_its_commands(feddst: Call, group: str, asked: str) -> None:
    outcome = feddst(group + asked)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"usage: feddst {group} COMMAND [options]\n")
    listed = [line.split()[0] for line in outcome.out.splitlines() if line.startswith("  ")]
    assert [f"{group} {name}" for name in listed] == [name for name in COMMANDS if name.split()[0] == group]


def test_help_declares_every_option_with_its_default(feddst: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    lines = feddst("run --help").out.splitlines()
    for opt in options_of(RunConfig):
        [line] = [line for line in lines if f"{line} ".startswith(f"  --{opt.name} ")]
        if (further := lines[lines.index(line) + 1].strip()).startswith("["):
            line = f"{line}  {further}"  # there was no room for the default
        if opt.type is bool:
            continue
        if opt.default not in ((), ""):
            typed = ",".join(map(str, opt.default)) if opt.repeated else opt.default
            assert line.endswith(f"[default: {typed}]")
        if f"--{opt.name} NAME" in line:  # there was no room for the choices
            begin = lines.index(next(each for each in lines if each.startswith(f"  --{opt.name} ")))
            line = " ".join(lines[begin : begin + 6])
        for choice in opt.choices:
            assert str(choice) in line
    assert max(map(len, lines)) <= 90


def test_help_says_whose_options_a_group_holds(feddst: Call) -> None:
    text = " ".join(feddst("run --help").out.split())
    assert "readjust: The readjustment schedule: ΔR, R_end, E_p and α_r. Only for feddst." in text
    assert "proximal: FedProx's penalty μ/2·‖θ − θ^r‖² on leaving the received model. Not for sign-sgd." in text
    assert "local: Training on a client's own images. --local.epochs" in text  # everybody's


def test_a_comparison_takes_methods_and_seeds_instead_of_one(feddst: Call) -> None:
    lines = feddst("compare --help").out.splitlines()
    names = {line.split()[0] for line in lines if line.startswith("  --")}
    assert {"--methods", "--seeds", "--caps", "--readjust.alpha", "--out"} <= names
    assert not {"--method", "--seed", "--resume"} & names


def test_data_show_takes_the_data_options_alone(feddst: Call) -> None:
    lines = feddst("data show --help").out.splitlines()
    names = {line.split()[0] for line in lines if line.startswith("  --")}
    assert names == {"--seed", "--out"} | {f"--{opt.name}" for opt in options_of(DataConfig, "data.")}


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("line", ["methods", "methods --costs"])
def test_methods_are_listed_on_a_page(feddst: Call, monkeypatch: pytest.MonkeyPatch, line: str, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = feddst(line).out.splitlines()
    assert [line.split()[0] for line in lines if line[0] != " "] == ["method", *METHODS]
    assert max(map(len, lines)) <= columns


def test_a_listing_has_every_word_of_its_cells(feddst: Call) -> None:
    listed = feddst("methods").out.split()
    for method in METHODS.values():
        assert set(f"{method.summary} {method.card.result}".split()) <= set(listed)


def test_presets_are_listed_one_a_line(feddst: Call) -> None:
    presets = feddst("presets").out.splitlines()[1:]
    assert [line.split()[0] for line in presets] == list(PRESETS)


def test_a_preset_shows_its_options(feddst: Call) -> None:
    out = feddst("presets table2-feddst+fedprox").out
    assert "feddst run --preset table2-feddst+fedprox\n" in out
    assert "\nreadjust.alpha           0.01\n" in out


def test_the_table_of_methods_is_in_the_docs_as_it_is_made(feddst: Call) -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    assert page.startswith(feddst("methods --markdown").out)
    rows = [line.replace("\\|", "") for line in page.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[1:]] == [f"| {name}" for name in METHODS]
    assert {row.count("|") for row in rows} == {9}
