"""docs/options.md is what `feddst options --markdown` makes, and that names every option of every command."""

from pathlib import Path

import pytest

from feddst.cli.main import COMMANDS, main
from feddst.options import options_of
from feddst.runtime import RunConfig

PAGE = (Path(__file__).parents[2] / "docs/options.md").read_text()


def test_the_page_is_in_the_docs_as_it_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "--markdown"]) == 0
    assert capsys.readouterr().out == PAGE


def test_every_option_has_its_row_with_its_default_and_meaning() -> None:
    run, _, commands = PAGE.partition("\n## Commands\n")
    for opt in options_of(RunConfig):
        [row] = [line for line in run.splitlines() if line.startswith(f"| `--{opt.name}` |")]
        assert row.replace("\\|", "|").endswith(f"| {opt.help} |")
        assert opt.allowed() in row
    for name, command in COMMANDS.items():
        [_, section] = commands.split(f"\n### feddst {name}\n")
        section = section.partition("\n### ")[0]
        for opt in command.options():
            if opt not in options_of(RunConfig):
                assert f"| `--{opt.name}` | " in section


def test_options_are_found_by_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "proximal"]) == 0
    found = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in found[1:]] == [["run", "--proximal.mu"], ["run", "--proximal.gradient"]]
    assert main(["options", "nonsense"]) == 2
    assert capsys.readouterr().err == "feddst: no option has 'nonsense' in its name or meaning\n"
