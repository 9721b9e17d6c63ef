"""The commands that docs/results.md tells a reader to type are understood, and mean what the page says."""

import re
import shlex
from pathlib import Path

import pytest

from feddst.cli.arguments import Arguments, parse
from feddst.cli.main import COMMANDS
from feddst.options import flatten, updated
from feddst.runtime import RunConfig
from feddst.runtime.config import config_of
from feddst.runtime.presets import SWEEPS, preset_options
from feddst.studies.reproduce import load_record
from feddst.studies.reproduce.borrow import borrowed
from feddst.studies.reproduce.config import ReproduceConfig

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/results.md").read_text()
LINES = [
    line.partition("  #")[0]
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


def understood(line: str) -> Arguments:
    words = shlex.split(line)[1:]
    name = next(name for name in COMMANDS if words[: len(name.split())] == name.split())
    return parse(words[len(name.split()) :], COMMANDS[name].options(), words=COMMANDS[name].words)


@pytest.mark.parametrize("line", LINES)
def test_commands_are_understood(line: str) -> None:
    assert understood(line).values


def test_the_other_reading_of_table_3_differs_in_its_sparsity_alone() -> None:
    [line] = [line for line in LINES if line.startswith("feddst run")]
    given = dict(understood(line).values)
    preset = preset_options(given.pop("preset"), "run")
    assert (preset["method"], preset["proximal.mu"]) == ("feddst", 1.0)
    caption, appendix = (flatten(config_of({**preset, **more})) for more in ({}, given))
    assert {name: (caption[name], appendix[name]) for name in caption if caption[name] != appendix[name]} == {
        "sparsity.level": (0.5, 0.8)
    }
    updated(RunConfig(), appendix).check()


@pytest.mark.parametrize("on", ["mnist", "cifar10", "cifar100"])
def test_the_figure_can_be_made_on_each_data_set_that_the_page_names(on: str) -> None:
    [line] = [line for line in LINES if line.startswith("feddst reproduce")]
    given = understood(line)
    assert (given.words, given.values) == (("compatibility",), {"on": "mnist"})
    updated(ReproduceConfig(given.words[0]), {"on": on}).check()


BORROWED = {"compatibility-mnist": "table1-paper", "compatibility-cifar10": "table2-paper"}
BORROWED |= {f"{sweep.name}-cifar10": "table2-lossless" for sweep in SWEEPS if "cifar10" in sweep.shown_on}
"""Records of figures that have rows of a table's record."""


@pytest.mark.parametrize("name", [name for name in BORROWED if (ROOT / "results" / name).is_dir()])
def test_the_figures_records_have_their_tables_rows(name: str) -> None:
    record = load_record(ROOT / "results" / name)
    table = load_record(ROOT / "results" / BORROWED[name])
    rows = {row.name: row.runs for row in borrowed(table, name.partition("-")[0]).rows}
    assert any(rows.values())
    assert all(row.runs[: len(rows[row.name])] == rows[row.name] for row in record.rows)
